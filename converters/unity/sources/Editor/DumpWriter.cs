using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Text;

namespace MlxSentis.Editor
{
    /// <summary>Writes a value of dictionaries, lists, texts, numbers and bool as JSON.</summary>
    internal static class DumpWriter
    {
        /// <summary>Writes a file beside its place and renames it: it is there whole or not at all.</summary>
        public static void Write(string path, object value)
        {
            StringBuilder text = new StringBuilder();
            Append(text, value);
            string beside = path + ".new";
            File.WriteAllText(beside, text.Append('\n').ToString(), new UTF8Encoding(false));
            File.Delete(path);
            File.Move(beside, path);
        }

        private static void Append(StringBuilder text, object value)
        {
            if (value == null)
            {
                text.Append("null");
            }
            else if (value is string)
            {
                AppendText(text, (string)value);
            }
            else if (value is bool)
            {
                text.Append((bool)value ? "true" : "false");
            }
            else if (value is Dictionary<string, object>)
            {
                AppendMembers(text, (Dictionary<string, object>)value);
            }
            else if (value is IEnumerable)
            {
                AppendItems(text, (IEnumerable)value);
            }
            else
            {
                text.Append(Convert.ToString(value, CultureInfo.InvariantCulture));
            }
        }

        private static void AppendMembers(StringBuilder text, Dictionary<string, object> members)
        {
            string between = "{";
            foreach (KeyValuePair<string, object> member in members)
            {
                text.Append(between);
                AppendText(text, member.Key);
                text.Append(": ");
                Append(text, member.Value);
                between = ", ";
            }

            text.Append(members.Count == 0 ? "{}" : "}");
        }

        private static void AppendItems(StringBuilder text, IEnumerable items)
        {
            text.Append('[');
            string between = "";
            foreach (object item in items)
            {
                text.Append(between);
                Append(text, item);
                between = ", ";
            }

            text.Append(']');
        }

        private static void AppendText(StringBuilder text, string said)
        {
            text.Append('"');
            foreach (char character in said)
            {
                if (character == '"' || character == '\\')
                {
                    text.Append('\\').Append(character);
                }
                else if (character < ' ' || character > '~')
                {
                    text.Append("\\u").Append(((int)character).ToString("x4", CultureInfo.InvariantCulture));
                }
                else
                {
                    text.Append(character);
                }
            }

            text.Append('"');
        }
    }
}
