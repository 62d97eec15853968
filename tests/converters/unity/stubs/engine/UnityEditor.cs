using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;

namespace UnityEditor
{
    [Flags]
    public enum ImportAssetOptions { Default = 0, ForceUpdate = 1, ForceSynchronousImport = 8 }

    public sealed class ExitedException : Exception
    {
        public ExitedException(int code) : base("exit " + code)
        {
            Code = code;
        }

        public int Code { get; private set; }
    }

    public static class EditorApplication
    {
        public static void Exit(int returnValue)
        {
            throw new ExitedException(returnValue);
        }
    }

    public static class AssetDatabase
    {
        // Sentis' stub is another assembly: it says how a file becomes an asset.
        public static Func<string, UnityEngine.Object> Importer;

        private static readonly Dictionary<string, UnityEngine.Object> Assets = new Dictionary<string, UnityEngine.Object>();

        public static void ImportAsset(string path, ImportAssetOptions options)
        {
            if (options != (ImportAssetOptions.ForceUpdate | ImportAssetOptions.ForceSynchronousImport))
            {
                throw new ArgumentException("an import that may be skipped or come later: " + options);
            }

            string root = Path.GetDirectoryName(UnityEngine.Application.dataPath);
            Assets[path] = Importer(Path.Combine(root, path));
        }

        public static T LoadAssetAtPath<T>(string path) where T : UnityEngine.Object
        {
            UnityEngine.Object found;
            return Assets.TryGetValue(path, out found) ? (T)found : null;
        }

        public static bool IsValidFolder(string path)
        {
            return Directory.Exists(Path.Combine(Path.GetDirectoryName(UnityEngine.Application.dataPath), path));
        }

        public static string CreateFolder(string parentFolder, string newFolderName)
        {
            string root = Path.GetDirectoryName(UnityEngine.Application.dataPath);
            Directory.CreateDirectory(Path.Combine(root, parentFolder, newFolderName));
            return "a guid";
        }

        public static bool DeleteAsset(string path)
        {
            Directory.Delete(Path.Combine(Path.GetDirectoryName(UnityEngine.Application.dataPath), path), true);
            return true;
        }
    }
}

namespace UnityEditor
{
    public static class FileUtil
    {
        public static bool DeleteFileOrDirectory(string path)
        {
            throw new NotSupportedException("DeleteAsset did it");
        }
    }
}

namespace UnityEditor.PackageManager
{
    public sealed class PackageInfo
    {
        public string name { get { return "com.unity.ai.inference"; } }

        public string version { get { return "2.6.1"; } }

        public static PackageInfo FindForAssembly(Assembly assembly)
        {
            return new PackageInfo();
        }
    }
}
