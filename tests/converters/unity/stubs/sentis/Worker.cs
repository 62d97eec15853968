using System;
using System.Collections.Generic;
using System.Globalization;
using UnityEditor;

namespace Unity.InferenceEngine
{
    public class ModelAsset : UnityEngine.ScriptableObject
    {
        internal string Path;
    }

    public class Model
    {
        public List<Input> inputs = new List<Input>();
        public List<Output> outputs = new List<Output>();
        internal string Handle;

        public struct Input
        {
            public string name;
            public int index;
            public DataType dataType;
            internal int[] Sizes;
        }

        public struct Output
        {
            public string name;
            public int index;
        }
    }

    public static class ModelLoader
    {
        public static Model Load(ModelAsset modelAsset)
        {
            Model model = new Model { Handle = modelAsset.Path };
            string[] lines = Engine.Ask("describe " + modelAsset.Path, null);
            foreach (string line in lines)
            {
                string[] words = line.Split(' ');
                if (words[0] == "output")
                {
                    model.outputs.Add(new Model.Output { name = words[1], index = model.outputs.Count });
                    continue;
                }

                int[] sizes = Engine.Sizes(words[3]);
                DataType type = words[2] == "float" ? DataType.Float : DataType.Int;
                model.inputs.Add(
                    new Model.Input { name = words[1], index = model.inputs.Count, dataType = type, Sizes = sizes });
            }

            return model;
        }
    }

    public class Worker : IDisposable
    {
        private readonly Model _model;
        private readonly BackendType _backend;
        private readonly Dictionary<string, Tensor> _given = new Dictionary<string, Tensor>();
        private readonly Dictionary<string, Tensor> _outputs = new Dictionary<string, Tensor>();
        private bool _isDisposed;

        public static int Workers;

        public Worker(Model model, BackendType backendType)
        {
            _model = model;
            _backend = backendType;
            Workers++;
        }

        public BackendType backendType { get { return _backend; } }

        public void SetInput(string name, Tensor input)
        {
            Model.Input wanted = InputOf(name);
            if (wanted.dataType != input.dataType)
            {
                throw new ArgumentException("Cannot set input tensor " + name + ": data types do not match");
            }

            bool fits = input.shape.rank == wanted.Sizes.Length;
            for (int i = 0; fits && i < wanted.Sizes.Length; i++)
            {
                fits = wanted.Sizes[i] < 0 || wanted.Sizes[i] == input.shape[i];
            }

            if (!fits)
            {
                throw new ArgumentException("Cannot set input tensor " + name + ": shapes are not compatible");
            }

            _given[name] = input;
        }

        private Model.Input InputOf(string name)
        {
            foreach (Model.Input one in _model.inputs)
            {
                if (one.name == name)
                {
                    return one;
                }
            }

            throw new ArgumentException("Cannot set input tensor " + name + ": the model has no input of that name");
        }

        public void Schedule()
        {
            long before = Ledger.Enter();
            Run();
            Ledger.Leave(before);
        }

        private void Run()
        {
            if (_isDisposed)
            {
                throw new ObjectDisposedException("Worker");
            }

            foreach (Tensor output in _outputs.Values)
            {
                output.Spoil();
            }

            foreach (Model.Input wanted in _model.inputs)
            {
                Tensor tensor = _given[wanted.name];
                tensor.RequireUse();
                tensor.Settle();
                tensor.MoveTo(_backend);
            }

            int made = Ledger.Made;
            int alive = Ledger.Alive;
            Engine.Run(_model.Handle, _given, _outputs, _backend);
            Ledger.Made = made; // the worker's own are not the caller's
            Ledger.Alive = alive;
            foreach (Tensor given in _given.Values)
            {
                given.ReadBy = _outputs[_model.outputs[0].name];
            }
        }

        public Tensor PeekOutput(string name)
        {
            return _outputs[name];
        }

        public void CopyOutput(string name, ref Tensor tensor)
        {
            Tensor source = PeekOutput(name);
            if (tensor == null)
            {
                tensor = source.CloneEmpty();
            }
            else
            {
                tensor.Reshape(source.shape);
            }

            tensor.MoveTo(_backend);
            tensor.Settle();
            tensor.CopyFrom(source);
        }

        public void Dispose()
        {
            Workers -= _isDisposed ? 0 : 1;
            _isDisposed = true;
            foreach (Tensor output in _outputs.Values)
            {
                output.IsPending = false;
            }
        }
    }
}
