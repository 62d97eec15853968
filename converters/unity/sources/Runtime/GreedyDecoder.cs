using System;
using System.Collections.Generic;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>
    /// Answers a prompt greedily, a token a call, with a cache of keys and values that is allocated once.
    /// <code>
    /// decoder.Begin(promptIds);
    /// while (decoder.Step()) { yield return null; }
    /// string answer = tokenizer.Decode(decoder.Ids);
    /// </code>
    /// </summary>
    /// <remarks>
    /// A step makes no tensor and no garbage of its own: the cache, the inputs of one token and the row of logits are
    /// made by the constructor. Only <see cref="Begin"/> makes some, for the prompt, and disposes of them.
    /// </remarks>
    public sealed class GreedyDecoder : IDisposable
    {
        private readonly Worker _worker;
        private readonly KeyValueCache _cache;
        private readonly StepInputs _step;
        private readonly LogitsReader _logits = new LogitsReader();
        private readonly List<int> _ids;
        private bool _isFirst;
        private bool _hasBegun;
        private int _next;

        /// <param name="model">What ModelLoader.Load makes of the kit's model.</param>
        /// <param name="backend">CPU or GPUCompute; GPUPixel cannot give a tensor another length.</param>
        /// <param name="maxTokens">
        /// The longest prompt with its answer, in tokens. The cache takes
        /// 8 × Layers × KvHeads × HeadDim bytes for each.
        /// </param>
        public GreedyDecoder(Model model, BackendType backend, int maxTokens)
        {
            if (model == null)
            {
                throw new ArgumentNullException(nameof(model), "the model was not imported: look at its import messages");
            }

            if (backend == BackendType.GPUPixel)
            {
                throw new ArgumentException("GPUPixel cannot reshape tensors: take CPU or GPUCompute", nameof(backend));
            }

            if (maxTokens < 1)
            {
                throw new ArgumentOutOfRangeException(nameof(maxTokens), "wanted at least 1");
            }

            MaxTokens = maxTokens;
            _ids = new List<int>(maxTokens);
            _worker = new Worker(model, backend);
            _cache = new KeyValueCache(maxTokens, backend);
            _step = new StepInputs(maxTokens, backend);
        }

        /// <summary>The longest prompt with its answer, in tokens.</summary>
        public int MaxTokens { get; }

        /// <summary>What was answered so far, without the id that ended it. The next Begin clears it.</summary>
        public IReadOnlyList<int> Ids
        {
            get { return _ids; }
        }

        /// <summary>Whether the answer has ended, by a stop id or because the cache is full.</summary>
        public bool IsDone { get; private set; }

        /// <summary>Whether the answer was cut because prompt and answer are <see cref="MaxTokens"/> long.</summary>
        public bool IsFull { get; private set; }

        /// <summary>
        /// The first token's logit minus the refusal's, which the gate decides by; NaN where none was asked for.
        /// </summary>
        public float Margin { get; private set; }

        /// <summary>Runs the model over a prompt. The answer is empty after it; each <see cref="Step"/> adds one id.</summary>
        /// <param name="promptIds">The ids of the whole prompt, its begin token among them where it has one.</param>
        /// <param name="refusalId">The first id of a refusal, for <see cref="Margin"/>; -1 to do without.</param>
        public void Begin(IReadOnlyList<int> promptIds, int refusalId = -1)
        {
            Require(promptIds);
            _ids.Clear();
            _cache.Clear();
            _step.Clear();
            IsDone = false;
            IsFull = false;
            Margin = float.NaN;
            using (PromptInputs prompt = new PromptInputs(promptIds))
            {
                prompt.Feed(_worker);
                _cache.Feed(_worker);
                _worker.Schedule();
                _cache.Take(_worker, promptIds.Count);
                _next = _logits.Choose(_worker, refusalId >= 0);
                if (refusalId >= 0)
                {
                    Margin = _logits.Margin(_next, refusalId);
                }
            }

            _isFirst = true;
            _hasBegun = true;
        }

        /// <summary>Adds the next id to <see cref="Ids"/>; returns false, and adds nothing, when the answer has ended.</summary>
        public bool Step()
        {
            if (!_hasBegun)
            {
                throw new InvalidOperationException("Begin(prompt) comes first");
            }

            if (IsDone)
            {
                return false;
            }

            if (!_isFirst)
            {
                if (_cache.Tokens == MaxTokens)
                {
                    IsFull = true;
                    IsDone = true;
                    return false;
                }

                Run(_next);
            }

            _isFirst = false;
            if (IsStop(_next))
            {
                IsDone = true;
                return false;
            }

            _ids.Add(_next);
            return true;
        }

        /// <summary>Answers at once and returns <see cref="Ids"/>; blocks until the answer has ended.</summary>
        /// <param name="promptIds">As for <see cref="Begin"/>.</param>
        /// <param name="maxNewTokens">The most ids to add.</param>
        /// <param name="refusalId">As for <see cref="Begin"/>.</param>
        public IReadOnlyList<int> Answer(IReadOnlyList<int> promptIds, int maxNewTokens, int refusalId = -1)
        {
            Begin(promptIds, refusalId);
            while (_ids.Count < maxNewTokens && Step())
            {
            }

            return _ids;
        }

        /// <summary>Gives back worker, cache and inputs. The model stays the caller's.</summary>
        public void Dispose()
        {
            _worker.Dispose();
            _cache.Dispose();
            _step.Dispose();
        }

        private void Run(int id)
        {
            _step.Feed(_worker, id, _cache.Tokens);
            _cache.Feed(_worker);
            _worker.Schedule();
            _cache.Take(_worker, _cache.Tokens + 1);
            _next = _logits.Choose(_worker, false);
        }

        private void Require(IReadOnlyList<int> promptIds)
        {
            if (promptIds == null || promptIds.Count == 0)
            {
                throw new ArgumentException("the prompt has no ids", nameof(promptIds));
            }

            if (promptIds.Count > MaxTokens)
            {
                throw new ArgumentException(
                    FormattableString.Invariant($"the prompt has {promptIds.Count} ids, there is room for {MaxTokens}"),
                    nameof(promptIds));
            }

            for (int i = 0; i < promptIds.Count; i++)
            {
                // Sentis checks no index: an id beyond the table reads whatever lies there.
                if (promptIds[i] < 0 || promptIds[i] >= ModelConstants.VocabularySize)
                {
                    throw new ArgumentException(
                        FormattableString.Invariant($"id {promptIds[i]} at {i} is none of the vocabulary"),
                        nameof(promptIds));
                }
            }
        }

        private static bool IsStop(int id)
        {
            for (int i = 0; i < ModelConstants.StopIds.Count; i++)
            {
                if (ModelConstants.StopIds[i] == id)
                {
                    return true;
                }
            }

            return false;
        }
    }
}
