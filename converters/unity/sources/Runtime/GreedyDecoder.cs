using System;
using System.Collections.Generic;
using Unity.InferenceEngine;

namespace MlxSentis
{
    /// <summary>
    /// Answers a prompt greedily, a token a call, with a cache of keys and values that is allocated once.
    /// <code>
    /// decoder.Begin(promptIds);
    /// while (decoder.Step()) { }
    /// string answer = tokenizer.Decode(decoder.Ids);
    /// </code>
    /// In a game, where no frame may wait for the model, in a coroutine:
    /// <code>
    /// decoder.BeginWithoutWaiting(promptIds);
    /// do { while (!decoder.Poll()) { yield return null; } } while (decoder.Step());
    /// </code>
    /// </summary>
    /// <remarks>
    /// A step makes no tensor and no garbage of its own: the cache, the inputs of one token and the row of logits are
    /// made by the constructor. Only a new prompt makes some, which are disposed of when it was run.
    /// </remarks>
    public sealed class GreedyDecoder : IDisposable
    {
        private readonly Worker _worker;
        private readonly KeyValueCache _cache;
        private readonly StepInputs _step;
        private readonly LogitsReader _logits = new LogitsReader();
        private readonly List<int> _ids;
        private PromptInputs _prompt; // until it was run
        private int _refusalId;
        private bool _hasBegun;
        private bool _isUnderWay; // a run was scheduled, and what it chooses is not read yet
        private bool _isAskedFor; // and its readback was requested
        private bool _isChosen; // it was read, and no Step has taken it yet
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

        /// <summary>
        /// Runs the model over a prompt and waits for it. The answer is empty after it; each <see cref="Step"/> adds one id.
        /// </summary>
        /// <param name="promptIds">The ids of the whole prompt, its begin token among them where it has one.</param>
        /// <param name="refusalId">The first id of a refusal, for <see cref="Margin"/>; -1 to do without.</param>
        public void Begin(IReadOnlyList<int> promptIds, int refusalId = -1)
        {
            BeginWithoutWaiting(promptIds, refusalId);
            Read();
        }

        /// <summary>As <see cref="Begin"/>, but only starts it: <see cref="Poll"/> tells when it has been run.</summary>
        /// <param name="promptIds">As for <see cref="Begin"/>.</param>
        /// <param name="refusalId">As for <see cref="Begin"/>; <see cref="Margin"/> is there after the first Step.</param>
        public void BeginWithoutWaiting(IReadOnlyList<int> promptIds, int refusalId = -1)
        {
            Require(promptIds);
            _ids.Clear();
            _cache.Clear();
            _step.Clear();
            IsDone = false;
            IsFull = false;
            Margin = float.NaN;
            _refusalId = refusalId;
            _hasBegun = true;
            _isChosen = false;
            ForgetPrompt();
            _prompt = new PromptInputs(promptIds);
            _prompt.Feed(_worker);
            Schedule(promptIds.Count);
        }

        /// <summary>
        /// Starts what the next <see cref="Step"/> needs and tells, without waiting, whether it is there. Asked once a
        /// frame until it is true, no Step waits; a Step that is not polled for waits itself.
        /// </summary>
        public bool Poll()
        {
            RequireBegun();
            if (IsDone || !Start() || _isChosen)
            {
                return true;
            }

            if (!_isAskedFor)
            {
                _logits.AskFor(_worker, _refusalId >= 0);
                _isAskedFor = true;
            }

            return _logits.IsThere;
        }

        /// <summary>Adds the next id to <see cref="Ids"/>; returns false, and adds nothing, when the answer has ended.</summary>
        public bool Step()
        {
            RequireBegun();
            if (IsDone || !Start())
            {
                return false;
            }

            Read();
            if (IsStop(_next))
            {
                IsDone = true;
                return false;
            }

            _ids.Add(_next);
            _isChosen = false;
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
            ForgetPrompt();
        }

        // Schedules the run that the next id comes from, unless it was; false where the cache is full.
        private bool Start()
        {
            if (_isUnderWay || _isChosen)
            {
                return true;
            }

            if (_cache.Tokens == MaxTokens)
            {
                IsFull = true;
                IsDone = true;
                return false;
            }

            _step.Feed(_worker, _next, _cache.Tokens);
            Schedule(1);
            return true;
        }

        private void Schedule(int newTokens)
        {
            _cache.Feed(_worker);
            _worker.Schedule();
            _cache.Take(_worker, _cache.Tokens + newTokens);
            _isUnderWay = true;
            _isAskedFor = false;
        }

        private void Read()
        {
            if (!_isUnderWay)
            {
                return;
            }

            _isUnderWay = false;
            _next = _logits.Choose(_worker, _refusalId >= 0);
            if (_refusalId >= 0)
            {
                Margin = _logits.Margin(_next, _refusalId);
                _refusalId = -1; // it is the first token's alone
            }

            _isChosen = true;
            ForgetPrompt();
        }

        private void ForgetPrompt()
        {
            if (_prompt != null)
            {
                _prompt.Dispose();
                _prompt = null;
            }
        }

        private void RequireBegun()
        {
            if (!_hasBegun)
            {
                throw new InvalidOperationException("Begin(prompt) comes first");
            }
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
