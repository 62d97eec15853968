using System;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>The inputs of one new token beside the cache: its id, its place, and a mask for each kind of attention.</summary>
    internal sealed class StepInputs : IDisposable
    {
        private readonly Tensor<int> _idTensor = new Tensor<int>(new TensorShape(1, 1));
        private readonly Tensor<int> _placeTensor = new Tensor<int>(new TensorShape(1, 1));
        private readonly Tensor<float>[] _maskTensors = new Tensor<float>[ModelConstants.MaskNames.Count];
        private readonly float[][] _masks = new float[ModelConstants.MaskNames.Count][];
        private readonly int[] _id = new int[1];
        private readonly int[] _place = new int[1];

        public StepInputs(int maxTokens, BackendType backend)
        {
            for (int i = 0; i < _masks.Length; i++)
            {
                _masks[i] = new float[maxTokens];
                _maskTensors[i] = new Tensor<float>(new TensorShape(1, 1, 1, maxTokens));
                if (backend == BackendType.GPUCompute)
                {
                    ComputeTensorData.Pin(_maskTensors[i]);
                }
            }
        }

        /// <summary>Forgets which tokens have left the windows.</summary>
        public void Clear()
        {
            for (int i = 0; i < _masks.Length; i++)
            {
                Array.Clear(_masks[i], 0, _masks[i].Length);
                _maskTensors[i].Upload(_masks[i]);
            }
        }

        /// <summary>Sets the inputs of the token that stands behind <paramref name="past"/> others.</summary>
        public void Feed(Worker worker, int id, int past)
        {
            _id[0] = id;
            _place[0] = past;
            _idTensor.Upload(_id);
            _placeTensor.Upload(_place);
            worker.SetInput(ModelConstants.IdsName, _idTensor);
            worker.SetInput(ModelConstants.PlacesName, _placeTensor);
            for (int i = 0; i < _masks.Length; i++)
            {
                Slide(i, past);
                _maskTensors[i].Reshape(new TensorShape(1, 1, 1, past + 1));
                worker.SetInput(ModelConstants.MaskNames[i], _maskTensors[i]);
            }
        }

        public void Dispose()
        {
            _idTensor.Dispose();
            _placeTensor.Dispose();
            for (int i = 0; i < _maskTensors.Length; i++)
            {
                _maskTensors[i].Dispose();
            }
        }

        // A token sees itself and the window - 1 tokens before it; what lies before that is masked, here all of it,
        // because a prompt may be longer than the window.
        private void Slide(int mask, int past)
        {
            int window = ModelConstants.MaskWindows[mask];
            if (window == 0 || past < window)
            {
                return;
            }

            int last = past - window;
            for (int at = last; at >= 0 && _masks[mask][at] == 0f; at--)
            {
                _masks[mask][at] = ModelConstants.Masked;
            }

            _maskTensors[mask].Upload(_masks[mask]);
        }
    }
}
