using System;
using System.Collections.Generic;
using System.Text;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>
    /// Compares what the game's code has (found) with what prompt_contract.json says (wanted). A failure names the
    /// field and the first byte, token or item that differs.
    /// </summary>
    internal static class FieldCheck
    {
        private const int Around = 16;

        public static void Bytes(string field, byte[] found, byte[] wanted)
        {
            int at = 0;
            while (at < found.Length && at < wanted.Length && found[at] == wanted[at])
            {
                at++;
            }

            if (at < found.Length || at < wanted.Length)
            {
                string sizes = FormattableString.Invariant($"{found.Length} and {wanted.Length} bytes");
                string place = FormattableString.Invariant($"byte {at}");
                Fail(field, place, Shown(found, at), Shown(wanted, at) + " (" + sizes + ")");
            }
        }

        public static void Text(string field, string found, string wanted)
        {
            if (found == null || wanted == null)
            {
                if (found != wanted)
                {
                    Fail(field, "", found ?? "none", wanted ?? "none");
                }

                return;
            }

            Bytes(field, Encoding.UTF8.GetBytes(found), Encoding.UTF8.GetBytes(wanted));
        }

        public static void Number(string field, int found, int wanted)
        {
            if (found != wanted)
            {
                Fail(field, "", FormattableString.Invariant($"{found}"), FormattableString.Invariant($"{wanted}"));
            }
        }

        public static void Flag(string field, bool found, bool wanted)
        {
            if (found != wanted)
            {
                Fail(field, "", found ? "true" : "false", wanted ? "true" : "false");
            }
        }

        public static void Ids(string field, IReadOnlyList<int> found, IReadOnlyList<int> wanted)
        {
            Number(field + ".Count", Matching(field, found, wanted, "token"), wanted.Count);
        }

        public static void Texts(string field, IReadOnlyList<string> found, IReadOnlyList<string> wanted)
        {
            Number(field + ".Count", Matching(field, found, wanted, "item"), wanted.Count);
        }

        private static int Matching<T>(string field, IReadOnlyList<T> found, IReadOnlyList<T> wanted, string what)
        {
            for (int at = 0; at < found.Count && at < wanted.Count; at++)
            {
                if (!EqualityComparer<T>.Default.Equals(found[at], wanted[at]))
                {
                    string place = FormattableString.Invariant($"{what} {at}");
                    string mine = FormattableString.Invariant($"{found[at]}");
                    Fail(field, place, mine, FormattableString.Invariant($"{wanted[at]}"));
                }
            }

            return found.Count;
        }

        private static void Fail(string field, string place, string found, string wanted)
        {
            Assert.Fail(field + ": " + (place.Length > 0 ? place + ": " : "") + "found " + found + ", wanted " + wanted);
        }

        private static string Shown(byte[] bytes, int at)
        {
            int start = Math.Max(0, at - Around);
            string piece = Encoding.UTF8.GetString(bytes, start, Math.Min(bytes.Length, at + Around) - start);
            return "'" + piece.Replace("\\", "\\\\").Replace("\n", "\\n").Replace("\r", "\\r") + "'";
        }
    }
}
