using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace MlxSentis
{
    /// <summary>
    /// Reads strict JSON into dictionaries, lists, texts, long or double, bool and null: no key twice, no half of a
    /// surrogate pair, nothing nested deeper than <see cref="Deepest"/>. Unity's JsonUtility reads no object whose keys
    /// are data, which the contract's samples and a call's arguments are.
    /// </summary>
    internal sealed class Json
    {
        private const int Deepest = 64;

        private readonly string _text;
        private int _at;
        private int _depth;

        private Json(string text, int at)
        {
            _text = text;
            _at = at;
        }

        /// <exception cref="FormatException">It is no JSON; the message names the character.</exception>
        public static object Parse(string text)
        {
            int at = 0;
            object value = ParseAt(text, ref at);
            Json rest = new Json(text, at);
            rest.SkipSpace();
            return rest._at == text.Length ? value : throw rest.Fault("the end");
        }

        /// <summary>Reads the one value that begins at a place, which is moved behind it; more text may follow.</summary>
        /// <exception cref="FormatException">As for <see cref="Parse"/>.</exception>
        public static object ParseAt(string text, ref int at)
        {
            Json json = new Json(text, at);
            object value = json.Value();
            at = json._at;
            return value;
        }

        private object Value()
        {
            SkipSpace();
            char first = Peek();
            if (first == '{' || first == '[')
            {
                _depth++;
                if (_depth > Deepest)
                {
                    throw Fault("less nesting");
                }

                object nested = first == '{' ? (object)Object() : Array();
                _depth--;
                return nested;
            }

            if (first == '"')
            {
                return Text();
            }

            return Take("true") ? true : Take("false") ? false : Take("null") ? (object)null : Number();
        }

        private Dictionary<string, object> Object()
        {
            Dictionary<string, object> members = new Dictionary<string, object>(StringComparer.Ordinal);
            _at++;
            SkipSpace();
            while (!Take("}"))
            {
                if (members.Count > 0)
                {
                    Expect(",");
                    SkipSpace();
                }

                string name = Text();
                SkipSpace();
                Expect(":");
                object value = Value();
                if (members.ContainsKey(name))
                {
                    throw Fault("each key once");
                }

                members.Add(name, value);
                SkipSpace();
            }

            return members;
        }

        private List<object> Array()
        {
            List<object> items = new List<object>();
            _at++;
            SkipSpace();
            while (!Take("]"))
            {
                if (items.Count > 0)
                {
                    Expect(",");
                }

                items.Add(Value());
                SkipSpace();
            }

            return items;
        }

        private string Text()
        {
            Expect("\"");
            StringBuilder text = new StringBuilder();
            while (Peek() != '"')
            {
                char next = _text[_at++];
                if (next < ' ')
                {
                    throw Fault("no control character");
                }

                text.Append(next == '\\' ? Escaped() : next);
            }

            _at++;
            string found = text.ToString();
            return HasHalfAPair(found) ? throw Fault("whole surrogate pairs") : found;
        }

        private char Escaped()
        {
            char kind = Peek();
            _at++;
            if (kind == 'u')
            {
                string digits = _at + 4 <= _text.Length ? _text.Substring(_at, 4) : "";
                if (!ushort.TryParse(digits, NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out ushort unit))
                {
                    throw Fault("four hexadecimal digits");
                }

                _at += 4;
                return (char)unit;
            }

            int place = "\"\\/bfnrt".IndexOf(kind);
            return place >= 0 ? "\"\\/\b\f\n\r\t"[place] : throw Fault("an escape");
        }

        private object Number()
        {
            int start = _at;
            Take("-");
            if (!Take("0"))
            {
                Digits();
            }

            bool isWhole = true;
            if (Take("."))
            {
                isWhole = false;
                Digits();
            }

            if (Take("e") || Take("E"))
            {
                isWhole = false;
                if (!Take("+"))
                {
                    Take("-");
                }

                Digits();
            }

            string digits = _text.Substring(start, _at - start);
            CultureInfo culture = CultureInfo.InvariantCulture;
            if (isWhole && long.TryParse(digits, NumberStyles.AllowLeadingSign, culture, out long whole))
            {
                return whole;
            }

            bool isRead = double.TryParse(digits, NumberStyles.Float, culture, out double number);
            return isRead && !double.IsInfinity(number) ? number : throw Fault("a smaller number");
        }

        private void Digits()
        {
            int start = _at;
            while (_at < _text.Length && _text[_at] >= '0' && _text[_at] <= '9')
            {
                _at++;
            }

            if (_at == start)
            {
                throw Fault("a value");
            }
        }

        private void SkipSpace()
        {
            while (_at < _text.Length && " \t\r\n".IndexOf(_text[_at]) >= 0)
            {
                _at++;
            }
        }

        private char Peek()
        {
            return _at < _text.Length ? _text[_at] : throw Fault("more");
        }

        private bool Take(string word)
        {
            if (string.CompareOrdinal(_text, _at, word, 0, word.Length) != 0)
            {
                return false;
            }

            _at += word.Length;
            return true;
        }

        private void Expect(string word)
        {
            if (!Take(word))
            {
                throw Fault(word);
            }
        }

        private static bool HasHalfAPair(string text)
        {
            for (int i = 0; i < text.Length; i++)
            {
                if (char.IsSurrogate(text[i]))
                {
                    if (!char.IsSurrogatePair(text, i))
                    {
                        return true;
                    }

                    i++;
                }
            }

            return false;
        }

        private FormatException Fault(string wanted)
        {
            return new FormatException(FormattableString.Invariant($"not JSON: character {_at}, wanted {wanted}"));
        }
    }
}
