using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace MlxSentis.Tests
{
    /// <summary>
    /// Reads JSON into dictionaries, lists, texts, long or double, bool and null. Unity's JsonUtility reads no object
    /// whose keys are data, which the contract's samples are.
    /// </summary>
    internal sealed class Json
    {
        private readonly string _text;
        private int _at;

        private Json(string text)
        {
            _text = text;
        }

        /// <exception cref="FormatException">It is no JSON; the message names the character.</exception>
        public static object Parse(string text)
        {
            Json json = new Json(text);
            object value = json.Value();
            json.SkipSpace();
            return json._at == text.Length ? value : throw json.Fault("the end");
        }

        private object Value()
        {
            SkipSpace();
            char first = Peek();
            if (first == '{')
            {
                return Object();
            }

            if (first == '[')
            {
                return Array();
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
                members[name] = Value();
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
                text.Append(next == '\\' ? Escaped() : next);
            }

            _at++;
            return text.ToString();
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
            while (_at < _text.Length && "+-.0123456789eE".IndexOf(_text[_at]) >= 0)
            {
                _at++;
            }

            string digits = _text.Substring(start, _at - start);
            CultureInfo culture = CultureInfo.InvariantCulture;
            if (long.TryParse(digits, NumberStyles.AllowLeadingSign, culture, out long whole))
            {
                return whole;
            }

            return double.TryParse(digits, NumberStyles.Float, culture, out double number) ? number : throw Fault("a value");
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

        private FormatException Fault(string wanted)
        {
            return new FormatException(FormattableString.Invariant($"not JSON: character {_at}, wanted {wanted}"));
        }
    }
}
