using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Runtime.CompilerServices;
using Unity.InferenceEngine;
using UnityEditor;
using UnityEngine;
using UnityEngine.Rendering;
using PackageInfo = UnityEditor.PackageManager.PackageInfo;

namespace MlxSentis.Editor
{
    /// <summary>
    /// Imports the models of fixtures.json, runs each fixture on each backend and writes what came out, for
    /// `mlx-sentis parity RUN --edge ab --sentis-dump DUMP`.
    /// <code>
    /// Unity -batchmode -projectPath MyGame -executeMethod MlxSentis.Editor.ParityHarness.Run -mlxSentisDump /tmp/dump
    /// </code>
    /// Without -nographics where GPUCompute shall be measured. Do not give -quit: the harness ends the editor itself, with
    /// 1 when it could not do it.
    /// </summary>
    /// <remarks>
    /// Further arguments: -mlxSentisFixtures FILE (else the kit's own: those of its model, or its probes),
    /// -mlxSentisRuns COUNT (3).
    /// </remarks>
    public static class ParityHarness
    {
        private const string Schema = "mlx-sentis/sentis-dump/1";

        /// <summary>What -executeMethod calls.</summary>
        public static void Run()
        {
            int code = 0;
            try
            {
                string dump = Argument("-mlxSentisDump")
                    ?? throw new ArgumentException("-mlxSentisDump FOLDER says where the outputs go");
                int runs = int.Parse(Argument("-mlxSentisRuns") ?? "3", CultureInfo.InvariantCulture);
                Dump(Argument("-mlxSentisFixtures") ?? OwnFixtures(), dump, runs);
            }
            catch (Exception error)
            {
                Debug.LogError("mlx-sentis: " + error.Message);
                code = 1;
            }

            if (Application.isBatchMode)
            {
                EditorApplication.Exit(code);
            }
        }

        /// <summary>Runs all fixtures of a file into a folder that is empty or not there.</summary>
        /// <param name="fixtures">A fixtures.json.</param>
        /// <param name="dump">The folder; dump.json is written last.</param>
        /// <param name="runs">How often each fixture is run and timed, at least once.</param>
        public static void Dump(string fixtures, string dump, int runs)
        {
            if (runs < 1)
            {
                throw new ArgumentOutOfRangeException(nameof(runs), "wanted at least 1");
            }

            if (Directory.Exists(dump) && Directory.GetFileSystemEntries(dump).Length > 0)
            {
                throw new ArgumentException(dump + ": not empty; outputs of two runs must not be mixed");
            }

            List<BackendType> backends = new List<BackendType> { BackendType.CPU };
            if (SystemInfo.supportsComputeShaders && SystemInfo.graphicsDeviceType != GraphicsDeviceType.Null)
            {
                backends.Add(BackendType.GPUCompute);
            }

            FixtureFile file = new FixtureFile(fixtures);
            Directory.CreateDirectory(dump);
            List<object> models = new List<object>();
            foreach (FixtureModel model in file.Models)
            {
                models.Add(DumpModel(model, dump, backends, runs));
            }

            DumpWriter.Write(Path.Combine(dump, "dump.json"), Document(models, backends));
            Debug.Log("mlx-sentis: " + dump + ": outputs of " + models.Count + " models");
        }

        private static Dictionary<string, object> Document(List<object> models, List<BackendType> backends)
        {
            PackageInfo package = PackageInfo.FindForAssembly(typeof(Worker).Assembly);
            string device = SystemInfo.processorType;
            return new Dictionary<string, object>
            {
                { "schema", Schema },
                { "package", package == null ? "" : package.name },
                { "version", package == null ? "" : package.version },
                { "unity", Application.unityVersion },
                { "date", DateTime.UtcNow.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture) },
                { "device", backends.Count == 1 ? device : device + " / " + SystemInfo.graphicsDeviceName },
                { "models", models },
            };
        }

        private static Dictionary<string, object> DumpModel(
            FixtureModel wanted, string dump, List<BackendType> backends, int runs)
        {
            List<object> found = new List<object>();
            string name = Path.GetFileName(wanted.ModelFile);
            using (ModelImport import = new ModelImport(wanted))
            {
                if (import.Model != null)
                {
                    foreach (BackendType backend in backends)
                    {
                        foreach (Fixture fixture in wanted.Fixtures())
                        {
                            FixtureRun run = new FixtureRun(backend, fixture, name + "/" + backend + "/" + fixture.Name);
                            found.Add(run.Execute(import.Model, dump, runs));
                        }
                    }
                }

                return new Dictionary<string, object>
                {
                    { "file", name },
                    { "sha256", import.Sha256 },
                    {
                        "import", new Dictionary<string, object>
                        {
                            { "ok", import.Model != null },
                            { "warnings", import.Warnings },
                            { "errors", import.Errors },
                        }
                    },
                    { "runs", found },
                };
            }
        }

        private static string Argument(string name)
        {
            string[] words = Environment.GetCommandLineArgs();
            int at = Array.IndexOf(words, name);
            return at >= 0 && at + 1 < words.Length ? words[at + 1] : null;
        }

        private static string OwnFixtures([CallerFilePath] string source = "")
        {
            string kit = Path.Combine(Path.GetDirectoryName(Path.GetFullPath(source)) ?? "", "..");
            string own = Path.Combine(kit, "Parity~", FixtureFile.Name);
            return File.Exists(own) ? own : Path.Combine(kit, "Probes~", "inputs", FixtureFile.Name);
        }
    }
}
