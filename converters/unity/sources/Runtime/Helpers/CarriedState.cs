using System;
using System.Collections.Generic;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>
    /// The state of a streaming model, such as an LSTM's: what one run puts out goes into the next. Its tensors are made
    /// once; the worker's own outputs cannot be fed back, their memory is taken at the next Schedule.
    /// </summary>
    public sealed class CarriedState : IDisposable
    {
        private readonly IReadOnlyList<string> _inputs;
        private readonly IReadOnlyList<string> _outputs;
        private readonly Tensor[] _tensors;
        private readonly float[][] _zeros;

        /// <param name="inputs">Names of the inputs that take the state.</param>
        /// <param name="outputs">Names of the outputs that give it, in the same order.</param>
        /// <param name="shapes">Their shapes.</param>
        public CarriedState(IReadOnlyList<string> inputs, IReadOnlyList<string> outputs, IReadOnlyList<TensorShape> shapes)
        {
            if (inputs.Count != outputs.Count || inputs.Count != shapes.Count)
            {
                throw new ArgumentException("wanted an output and a shape for each input");
            }

            _inputs = inputs;
            _outputs = outputs;
            _tensors = new Tensor[inputs.Count];
            _zeros = new float[inputs.Count][];
            for (int i = 0; i < _tensors.Length; i++)
            {
                _zeros[i] = new float[shapes[i].length];
                _tensors[i] = new Tensor<float>(shapes[i]);
            }
        }

        /// <summary>Begins a new stream: the state is zero.</summary>
        public void Clear()
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                ((Tensor<float>)_tensors[i]).Upload(_zeros[i]);
            }
        }

        /// <summary>Hands the state to the model, before Schedule.</summary>
        public void Feed(Worker worker)
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                worker.SetInput(_inputs[i], _tensors[i]);
            }
        }

        /// <summary>Takes the state that the model put out, after Schedule.</summary>
        public void Take(Worker worker)
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                worker.CopyOutput(_outputs[i], ref _tensors[i]);
            }
        }

        /// <summary>Gives its tensors back.</summary>
        public void Dispose()
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                _tensors[i].Dispose();
            }
        }
    }
}
