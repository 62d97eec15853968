using System;
using System.Collections.Generic;

namespace MlxSentis
{
    /// <summary>
    /// Reads the calls of FunctionGemma's syntax, in which texts stand between marks instead of quotes:
    /// <code>&lt;start_function_call&gt;call:open{door:&lt;escape&gt;left&lt;escape&gt;,count:2}&lt;end_function_call&gt;</code>
    /// </summary>
    internal sealed class EscapedCalls
    {
        public const string Begin = "<start_function_call>";

        private const string End = "<end_function_call>";
        private const string Mark = "<escape>";
        private const string Prefix = "call:";
        private const string EndsWord = "{}[],:<";
        private const int Deepest = 64;

        private readonly string _text;
        private int _at;
        private int _depth;

        private EscapedCalls(string text, int at)
        {
            _text = text;
            _at = at;
        }

        /// <summary>Reads each call of an answer; what stands around them is passed over.</summary>
        /// <param name="text">The answer, its marks in it: a tokenizer that leaves special tokens out takes them away.</param>
        /// <param name="take">Hears a call's name and its arguments.</param>
        /// <exception cref="FormatException">A call that is begun is not well-formed.</exception>
        public static void Read(string text, Action<string, Dictionary<string, object>> take)
        {
            int begin = text.IndexOf(Begin, StringComparison.Ordinal);
            while (begin >= 0)
            {
                EscapedCalls reader = new EscapedCalls(text, begin + Begin.Length);
                string name = reader.Name();
                Dictionary<string, object> arguments = (Dictionary<string, object>)reader.Value();
                reader.SkipSpace();
                reader.Require(End);
                take(name, arguments);
                begin = text.IndexOf(Begin, reader._at, StringComparison.Ordinal);
            }
        }

        // Behind "call:" up to the brace, which is left to be read; white space before the brace is no part of it.
        private string Name()
        {
            SkipSpace();
            Require(Prefix);
            int end = _text.IndexOfAny(new[] { '{', '<' }, _at);
            if (end <= _at || _text[end] != '{')
            {
                throw Fault("a name and {");
            }

            string name = _text.Substring(_at, end - _at);
            _at = end;
            string trimmed = name.TrimEnd(PromptBuilder.WhiteSpace);
            return trimmed.Length > 0 ? trimmed : name.Substring(0, 1);
        }

        private object Value()
        {
            SkipSpace();
            if (Take(Mark))
            {
                return UpTo(Mark);
            }

            if (Take("{"))
            {
                Dictionary<string, object> members = new Dictionary<string, object>(StringComparer.Ordinal);
                Items("}", () => members[Key()] = Value());
                return members;
            }

            if (Take("["))
            {
                List<object> items = new List<object>();
                Items("]", () => items.Add(Value()));
                return items;
            }

            return Word();
        }

        // A number, true, false, null, or what Python prints of the last three.
        private object Word()
        {
            int start = _at;
            while (_at < _text.Length && EndsWord.IndexOf(_text[_at]) < 0)
            {
                _at++;
            }

            string word = _text.Substring(start, _at - start).Trim(PromptBuilder.WhiteSpace);
            switch (word)
            {
                case "True":
                    return true;
                case "False":
                    return false;
                case "None":
                    return null;
                default:
                    return Json.Parse(word);
            }
        }

        private string Key()
        {
            SkipSpace();
            if (!Take(Mark))
            {
                return UpTo(":").TrimEnd(PromptBuilder.WhiteSpace);
            }

            string key = UpTo(Mark);
            SkipSpace();
            Require(":");
            return key;
        }

        private void Items(string closing, Action item)
        {
            if (Take(closing))
            {
                return;
            }

            _depth++;
            if (_depth > Deepest)
            {
                throw Fault("less nesting");
            }

            item();
            SkipSpace();
            while (Take(","))
            {
                item();
                SkipSpace();
            }

            Require(closing);
            _depth--;
        }

        private void SkipSpace()
        {
            while (_at < _text.Length && Array.IndexOf(PromptBuilder.WhiteSpace, _text[_at]) >= 0)
            {
                _at++;
            }
        }

        private bool Take(string mark)
        {
            if (string.CompareOrdinal(_text, _at, mark, 0, mark.Length) != 0)
            {
                return false;
            }

            _at += mark.Length;
            return true;
        }

        private void Require(string mark)
        {
            if (!Take(mark))
            {
                throw Fault(mark);
            }
        }

        private string UpTo(string mark)
        {
            int end = _text.IndexOf(mark, _at, StringComparison.Ordinal);
            if (end < 0)
            {
                throw Fault(mark);
            }

            string found = _text.Substring(_at, end - _at);
            _at = end + mark.Length;
            return found;
        }

        private FormatException Fault(string wanted)
        {
            return new FormatException(FormattableString.Invariant($"no call: character {_at}, wanted {wanted}"));
        }
    }
}
