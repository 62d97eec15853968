using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using Unity.InferenceEngine;

namespace MlxSentis.Editor
{
    /// <summary>One fixture on one backend: timed, and its outputs written as raw bytes.</summary>
    internal sealed class FixtureRun
    {
        private readonly BackendType _backend;
        private readonly Fixture _fixture;
        private readonly string _folder;
        private readonly List<object> _outputs = new List<object>();
        private readonly List<double> _milliseconds = new List<double>();

        /// <param name="backend">CPU or GPUCompute.</param>
        /// <param name="fixture">The inputs.</param>
        /// <param name="folder">Where its outputs go, relative to the dump's folder.</param>
        public FixtureRun(BackendType backend, Fixture fixture, string folder)
        {
            _backend = backend;
            _fixture = fixture;
            _folder = folder;
        }

        /// <summary>Runs it and returns the entry of dump.json; what is thrown becomes its error.</summary>
        public Dictionary<string, object> Execute(Model model, string dump, int runs)
        {
            string thrown = "";
            List<Tensor> inputs = new List<Tensor>();
            try
            {
                foreach (FixtureInput input in _fixture.Inputs)
                {
                    inputs.Add(TensorBytes.ToTensor(input));
                }

                using (Worker worker = new Worker(model, _backend))
                {
                    Measure(worker, model, inputs, dump, runs);
                }
            }
            catch (Exception error)
            {
                thrown = error.GetType().Name + ": " + error.Message;
                _outputs.Clear();
            }
            finally
            {
                foreach (Tensor input in inputs)
                {
                    input.Dispose();
                }
            }

            return new Dictionary<string, object>
            {
                { "backend", _backend.ToString() },
                { "fixture", _fixture.Name },
                { "fixture_sha256", _fixture.Sha256 },
                { "milliseconds", _milliseconds },
                { "error", thrown },
                { "outputs", _outputs },
            };
        }

        private void Measure(Worker worker, Model model, List<Tensor> inputs, string dump, int runs)
        {
            for (int run = 0; run < runs; run++)
            {
                Stopwatch watch = Stopwatch.StartNew();
                for (int i = 0; i < inputs.Count; i++)
                {
                    worker.SetInput(_fixture.Inputs[i].Name, inputs[i]);
                }

                worker.Schedule();
                bool isLast = run == runs - 1;
                List<byte[]> read = new List<byte[]>();
                foreach (Model.Output output in model.outputs)
                {
                    Tensor tensor = worker.PeekOutput(output.name);
                    read.Add(TensorBytes.Of(tensor, out string dtype));
                    if (isLast)
                    {
                        _outputs.Add(Entry(output.name, dtype, tensor.shape.ToArray(), read[read.Count - 1]));
                    }
                }

                _milliseconds.Add(watch.Elapsed.TotalMilliseconds);
                if (isLast)
                {
                    Write(dump, read);
                }
            }
        }

        private Dictionary<string, object> Entry(string name, string dtype, int[] shape, byte[] bytes)
        {
            return new Dictionary<string, object>
            {
                { "name", name },
                { "dtype", dtype },
                { "shape", shape },
                { "file", bytes.Length == 0 ? null : _folder + "/" + _outputs.Count + ".bin" },
            };
        }

        private void Write(string dump, List<byte[]> read)
        {
            Directory.CreateDirectory(Path.Combine(dump, _folder));
            for (int i = 0; i < read.Count; i++)
            {
                if (read[i].Length > 0)
                {
                    File.WriteAllBytes(Path.Combine(dump, _folder, i + ".bin"), read[i]);
                }
            }
        }
    }
}
