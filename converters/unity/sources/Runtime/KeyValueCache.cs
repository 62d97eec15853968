using System;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>
    /// Keys and values of the tokens so far: one tensor of full length for each of the model's cache inputs, reshaped
    /// to what it holds.
    /// </summary>
    /// <remarks>
    /// The model's own outputs cannot be fed back to it: they belong to the worker, which takes their memory for other
    /// tensors at the next Schedule. So they are copied, into memory that is there already.
    /// </remarks>
    internal sealed class KeyValueCache : IDisposable
    {
        private readonly Tensor[] _tensors = new Tensor[ModelConstants.PastNames.Count];

        public KeyValueCache(int maxTokens, BackendType backend)
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                _tensors[i] = new Tensor<float>(ShapeOf(maxTokens));
                if (backend == BackendType.GPUCompute)
                {
                    // Moved while it has its full length: what is moved later keeps room for no more than it holds.
                    ComputeTensorData.Pin(_tensors[i]);
                }
            }

            Clear();
        }

        /// <summary>How many tokens it holds.</summary>
        public int Tokens { get; private set; }

        public void Clear()
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                _tensors[i].Reshape(ShapeOf(0));
            }

            Tokens = 0;
        }

        public void Feed(Worker worker)
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                worker.SetInput(ModelConstants.PastNames[i], _tensors[i]);
            }
        }

        /// <summary>Takes over what the model put out: the cache with the step's tokens behind it.</summary>
        public void Take(Worker worker, int tokens)
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                worker.CopyOutput(ModelConstants.PresentNames[i], ref _tensors[i]);
            }

            Tokens = tokens;
        }

        public void Dispose()
        {
            for (int i = 0; i < _tensors.Length; i++)
            {
                _tensors[i].Dispose();
            }
        }

        private static TensorShape ShapeOf(int tokens)
        {
            return new TensorShape(1, ModelConstants.KvHeads, tokens, ModelConstants.HeadDim);
        }
    }
}
