using System;
using System.Collections.Generic;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>The inputs of a whole prompt beside the empty cache. Made for one run and disposed of.</summary>
    internal sealed class PromptInputs : IDisposable
    {
        private readonly Tensor<int> _ids;
        private readonly Tensor<int> _places;
        private readonly Tensor<float>[] _masks = new Tensor<float>[ModelConstants.MaskNames.Count];

        public PromptInputs(IReadOnlyList<int> promptIds)
        {
            int[] ids = new int[promptIds.Count];
            int[] places = new int[promptIds.Count];
            for (int i = 0; i < ids.Length; i++)
            {
                ids[i] = promptIds[i];
                places[i] = i;
            }

            _ids = new Tensor<int>(new TensorShape(1, ids.Length), ids);
            _places = new Tensor<int>(new TensorShape(1, ids.Length), places);
            for (int i = 0; i < _masks.Length; i++)
            {
                _masks[i] = MaskOf(ids.Length, ModelConstants.MaskWindows[i]);
            }
        }

        public void Feed(Worker worker)
        {
            worker.SetInput(ModelConstants.IdsName, _ids);
            worker.SetInput(ModelConstants.PlacesName, _places);
            for (int i = 0; i < _masks.Length; i++)
            {
                worker.SetInput(ModelConstants.MaskNames[i], _masks[i]);
            }
        }

        public void Dispose()
        {
            _ids.Dispose();
            _places.Dispose();
            for (int i = 0; i < _masks.Length; i++)
            {
                _masks[i].Dispose();
            }
        }

        // Row by row: 0 where a token may look, Masked where it may not: behind itself, and before its window.
        private static Tensor<float> MaskOf(int tokens, int window)
        {
            float[] mask = new float[tokens * tokens];
            for (int row = 0; row < tokens; row++)
            {
                for (int column = 0; column < tokens; column++)
                {
                    bool isSeen = column <= row && (window == 0 || column > row - window);
                    mask[row * tokens + column] = isSeen ? 0f : ModelConstants.Masked;
                }
            }

            return new Tensor<float>(new TensorShape(1, 1, tokens, tokens), mask);
        }
    }
}
