using System;

namespace MlxSentis
{
    /// <summary>
    /// Decides whether the game carries a call out. Training does not teach a small model to decline: what is out of
    /// scope is often answered with a call, and the first token's margin tells many of those apart.
    /// <code>
    /// decoder.Answer(promptIds, 64, GateRules.RefusalId);
    /// if (CallGate.TryPass(tokenizer.Decode(decoder.Ids), decoder.Margin, out ToolCall call)) { … }
    /// </code>
    /// </summary>
    public static class CallGate
    {
        /// <summary>
        /// Returns the call of an answer that makes exactly one, of a tool on the list, with a margin of at least the
        /// threshold. Anything else counts as a refusal.
        /// </summary>
        /// <param name="answer">The answer's text, without the id that ended it.</param>
        /// <param name="margin"><see cref="GreedyDecoder.Margin"/> of this answer.</param>
        /// <param name="call">The call to carry out, or null.</param>
        public static bool TryPass(string answer, float margin, out ToolCall call)
        {
            // A margin that was not asked for is NaN and passes no comparison.
            if (ToolCall.TryRead(answer, out call) && IsKnown(call.Name) && margin >= GateRules.Threshold)
            {
                return true;
            }

            call = null;
            return false;
        }

        private static bool IsKnown(string tool)
        {
            for (int i = 0; i < GateRules.Tools.Count; i++)
            {
                if (string.Equals(GateRules.Tools[i], tool, StringComparison.Ordinal))
                {
                    return true;
                }
            }

            return false;
        }
    }
}
