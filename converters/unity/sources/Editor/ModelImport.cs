using System;
using System.Collections.Generic;
using System.IO;
using Unity.InferenceEngine;
using UnityEditor;
using UnityEngine;

namespace MlxSentis.Editor
{
    /// <summary>
    /// A model imported afresh, with what was said meanwhile. A file that Unity does not see (outside of Assets, or in a
    /// folder that ends in ~) is copied in for the time, with its side files, and taken out again.
    /// </summary>
    internal sealed class ModelImport : IDisposable
    {
        private const string Assets = "Assets";
        private const string GuestName = "MlxSentisParity";
        private const string Guest = Assets + "/" + GuestName;

        private readonly string _copied;

        public ModelImport(FixtureModel wanted)
        {
            Application.logMessageReceived += Hear;
            try
            {
                string path = InProject(wanted.ModelFile);
                if (path == null)
                {
                    _copied = Guest;
                    path = CopyIn(wanted);
                }

                Sha256 = FixtureHash.OfFile(wanted.ModelFile);
                AssetDatabase.ImportAsset(
                    path, ImportAssetOptions.ForceSynchronousImport | ImportAssetOptions.ForceUpdate);
                ModelAsset asset = AssetDatabase.LoadAssetAtPath<ModelAsset>(path);
                Model = asset == null ? null : ModelLoader.Load(asset);
            }
            catch (Exception error)
            {
                Errors.Add(error.GetType().Name + ": " + error.Message);
            }
            finally
            {
                Application.logMessageReceived -= Hear;
            }

            if (Model == null && Errors.Count == 0)
            {
                Errors.Add("no model came out of the import, and nothing was said");
            }
        }

        /// <summary>Null where the import failed.</summary>
        public Model Model { get; }

        public string Sha256 { get; } = "";

        public List<string> Warnings { get; } = new List<string>();

        public List<string> Errors { get; } = new List<string>();

        public void Dispose()
        {
            if (_copied != null && !AssetDatabase.DeleteAsset(_copied))
            {
                FileUtil.DeleteFileOrDirectory(_copied);
                FileUtil.DeleteFileOrDirectory(_copied + ".meta");
            }
        }

        private void Hear(string said, string trace, LogType type)
        {
            if (type == LogType.Warning)
            {
                Warnings.Add(said);
            }
            else if (type != LogType.Log)
            {
                Errors.Add(said);
            }
        }

        private static string InProject(string file)
        {
            string root = Path.GetFullPath(Application.dataPath).Replace('\\', '/') + "/";
            string path = file.Replace('\\', '/');
            if (!path.StartsWith(root, StringComparison.Ordinal))
            {
                return null;
            }

            string inside = path.Substring(root.Length);
            foreach (string part in inside.Split('/'))
            {
                if (part.StartsWith(".", StringComparison.Ordinal) || part.EndsWith("~", StringComparison.Ordinal))
                {
                    return null;
                }
            }

            return Assets + "/" + inside;
        }

        private static string CopyIn(FixtureModel wanted)
        {
            string folder = Path.Combine(Application.dataPath, GuestName);
            if (!AssetDatabase.IsValidFolder(Guest))
            {
                AssetDatabase.CreateFolder(Assets, GuestName);
            }

            string from = Path.GetDirectoryName(wanted.ModelFile) ?? "";
            foreach (string side in wanted.SideFiles)
            {
                // Sentis reads them while it imports the model, and hears of no later change.
                File.Copy(Path.Combine(from, side), Path.Combine(folder, side), true);
            }

            string name = Path.GetFileName(wanted.ModelFile);
            File.Copy(wanted.ModelFile, Path.Combine(folder, name), true);
            return Guest + "/" + name;
        }
    }
}
