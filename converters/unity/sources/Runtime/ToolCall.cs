using System;
using System.Collections.Generic;

namespace MlxSentis
{
    /// <summary>A call that an answer makes: the name of a tool, and its arguments as the model wrote them.</summary>
    public sealed class ToolCall
    {
        private const string Begin = "<tool_call>";
        private const string End = "</tool_call>";
        private const string Mark = "<|python_tag|>";

        private ToolCall(string name, IReadOnlyDictionary<string, object> arguments)
        {
            Name = name;
            Arguments = arguments;
        }

        /// <summary>The tool's name; no list has been asked yet (see CallGate, where the kit has one).</summary>
        public string Name { get; }

        /// <summary>
        /// Its arguments: string, long, double, bool, null, List&lt;object&gt; or Dictionary&lt;string, object&gt;.
        /// </summary>
        public IReadOnlyDictionary<string, object> Arguments { get; }

        /// <summary>Reads an answer; true when it makes exactly one well-formed call.</summary>
        /// <param name="answer">What the tokenizer makes of the ids, without the id that ended the answer.</param>
        /// <param name="call">The call; null where there is none, a broken one, or more than one.</param>
        public static bool TryRead(string answer, out ToolCall call)
        {
            call = null;
            string text = (answer ?? "").Trim(PromptBuilder.WhiteSpace);
            List<ToolCall> calls = new List<ToolCall>();
            try
            {
                if (PromptContract.ToolStyle == "system-block")
                {
                    ReadLines(text, calls);
                }
                else if (text.StartsWith("{", StringComparison.Ordinal) || text.StartsWith(Mark, StringComparison.Ordinal))
                {
                    ReadSequence(text.StartsWith("{", StringComparison.Ordinal) ? text : text.Substring(Mark.Length), calls);
                }
                else if (IsEscaped(text))
                {
                    EscapedCalls.Read(text, (name, arguments) => calls.Add(new ToolCall(name, arguments)));
                }
                else
                {
                    ReadBlocks(text, calls);
                }
            }
            catch (FormatException)
            {
                return false;
            }

            call = calls.Count == 1 ? calls[0] : null;
            return call != null;
        }

        // Lines that begin with a brace; other text may stand before them, not behind.
        private static void ReadLines(string text, List<ToolCall> calls)
        {
            bool hasBegun = false;
            foreach (string line in text.Split('\n'))
            {
                hasBegun |= line.StartsWith("{", StringComparison.Ordinal);
                if (hasBegun && line.Trim(PromptBuilder.WhiteSpace).Length > 0)
                {
                    calls.Add(Of(Json.Parse(line), "arguments"));
                }
            }
        }

        // One object behind the other, semicolons between them: {"name": …, "parameters": {…}}.
        private static void ReadSequence(string text, List<ToolCall> calls)
        {
            int at = 0;
            text = text.Trim(PromptBuilder.WhiteSpace);
            while (at < text.Length)
            {
                object value = Json.ParseAt(text, ref at);
                bool isLlama = value is Dictionary<string, object> members && members.ContainsKey("parameters");
                calls.Add(Of(value, isLlama ? "parameters" : "arguments"));
                at = Behind(text, at, ";");
            }
        }

        // The mark that stands first says which of the two syntaxes with marks it is.
        private static bool IsEscaped(string text)
        {
            int block = text.IndexOf(Begin, StringComparison.Ordinal);
            int escaped = text.IndexOf(EscapedCalls.Begin, StringComparison.Ordinal);
            return escaped >= 0 && (block < 0 || escaped < block);
        }

        private static void ReadBlocks(string text, List<ToolCall> calls)
        {
            int at = text.IndexOf(Begin, StringComparison.Ordinal);
            while (at >= 0)
            {
                at = Behind(text, at + Begin.Length, "");
                calls.Add(Of(Json.ParseAt(text, ref at), "arguments"));
                at = Behind(text, at, "");
                if (string.CompareOrdinal(text, at, End, 0, End.Length) != 0)
                {
                    throw new FormatException("wanted " + End);
                }

                at = text.IndexOf(Begin, at + End.Length, StringComparison.Ordinal);
            }
        }

        private static ToolCall Of(object value, string argumentsKey)
        {
            if (value is Dictionary<string, object> members && members.Count == 2
                && members.TryGetValue("name", out object name) && name is string
                && members.TryGetValue(argumentsKey, out object found) && found is Dictionary<string, object> arguments)
            {
                return new ToolCall((string)name, arguments);
            }

            throw new FormatException("not a call");
        }

        private static int Behind(string text, int at, string also)
        {
            while (at < text.Length
                && (Array.IndexOf(PromptBuilder.WhiteSpace, text[at]) >= 0 || also.IndexOf(text[at]) >= 0))
            {
                at++;
            }

            return at;
        }
    }
}
