using System;
using Unity.Collections;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>Chooses the next id from what the model put out.</summary>
    internal sealed class LogitsReader
    {
        private readonly float[] _row = new float[ModelConstants.VocabularySize];
        private Tensor _asked;

        /// <summary>Whether what was asked for can be read without waiting.</summary>
        public bool IsThere
        {
            get { return _asked.IsReadbackRequestDone(); }
        }

        /// <summary>Asks for what <see cref="Choose"/> will read; it arrives in some later frame.</summary>
        public void AskFor(Worker worker, bool wantsLogits)
        {
            bool isRow = wantsLogits || ModelConstants.NextTokenName == null;
            _asked = worker.PeekOutput(isRow ? ModelConstants.LogitsName : ModelConstants.NextTokenName);
            _asked.ReadbackRequest();
        }

        /// <summary>
        /// Returns the id of the last row's greatest logit, the first one of equals. Where the model puts that id out
        /// itself, the logits stay on their device unless they are wanted.
        /// </summary>
        public int Choose(Worker worker, bool wantsLogits)
        {
            if (wantsLogits || ModelConstants.NextTokenName == null)
            {
                Read((Tensor<float>)worker.PeekOutput(ModelConstants.LogitsName));
                return Greatest();
            }

            Tensor<int> chosen = (Tensor<int>)worker.PeekOutput(ModelConstants.NextTokenName);
            if (chosen.backendType == BackendType.CPU)
            {
                chosen.CompleteAllPendingOperations();
                return chosen[0];
            }

            return chosen.DownloadToNativeArray()[0];
        }

        /// <summary>Returns one logit minus another of the row that was read last, in float32.</summary>
        public float Margin(int id, int otherId)
        {
            return (float)(_row[id] - _row[otherId]);
        }

        private void Read(Tensor<float> logits)
        {
            int start = logits.shape.length - _row.Length;
            if (logits.backendType == BackendType.CPU)
            {
                logits.CompleteAllPendingOperations();
                NativeArray<float>.Copy(logits.AsReadOnlyNativeArray(), start, _row, 0, _row.Length);
                return;
            }

            NativeArray<float>.Copy(logits.DownloadToNativeArray(), start, _row, 0, _row.Length);
        }

        private int Greatest()
        {
            int best = 0;
            for (int i = 0; i < _row.Length; i++)
            {
                if (float.IsNaN(_row[i]))
                {
                    throw new InvalidOperationException("the model put out NaN: dump its outputs with the parity harness");
                }

                if (_row[i] > _row[best])
                {
                    best = i;
                }
            }

            return best;
        }
    }
}
