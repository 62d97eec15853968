using System;
using System.Text;

namespace MlxSentis
{
    /// <summary>
    /// Builds the prompt of one user turn, to the byte as the model was trained: what the chat template writes before
    /// the text, the text, what it writes behind it. The last characters open the answer.
    /// </summary>
    /// <remarks>
    /// The prompt already holds its begin token where there is one: the tokenizer must add none
    /// (<see cref="PromptContract.BosCountInPrompt"/>).
    /// </remarks>
    public static class PromptBuilder
    {
        // Invalid surrogates throw instead of becoming U+FFFD, which no row was trained with.
        private static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);

        // What Python's strip takes away, in templates and answers; string.Trim() without arguments takes another set.
        internal static readonly char[] WhiteSpace =
        {
            '\u0009', '\u000A', '\u000B', '\u000C', '\u000D', '\u001C', '\u001D', '\u001E', '\u001F', '\u0020',
            '\u0085', '\u00A0', '\u1680', '\u2000', '\u2001', '\u2002', '\u2003', '\u2004', '\u2005', '\u2006',
            '\u2007', '\u2008', '\u2009', '\u200A', '\u2028', '\u2029', '\u202F', '\u205F', '\u3000'
        };

        /// <summary>Returns the prompt as text.</summary>
        /// <param name="userText">What the user says, as it was typed.</param>
        /// <exception cref="ArgumentNullException">There is no text.</exception>
        /// <exception cref="ArgumentException">The text holds a special token, which would end or open a turn.</exception>
        public static string Build(string userText)
        {
            if (userText == null)
            {
                throw new ArgumentNullException(nameof(userText));
            }

            for (int i = 0; i < PromptContract.SpecialTokens.Count; i++)
            {
                string token = PromptContract.SpecialTokens[i];
                if (userText.IndexOf(token, StringComparison.Ordinal) >= 0)
                {
                    throw new ArgumentException(
                        "the text has the special token " + token + ": take it out", nameof(userText));
                }
            }

            string said = userText;
            if (PromptContract.StripsStart)
            {
                said = said.TrimStart(WhiteSpace);
            }

            if (PromptContract.StripsEnd)
            {
                said = said.TrimEnd(WhiteSpace);
            }

            return string.Concat(PromptContract.Before, said, PromptContract.After);
        }

        /// <summary>Returns the prompt as UTF-8 bytes without a byte-order mark.</summary>
        /// <param name="userText">What the user says, as it was typed.</param>
        /// <exception cref="ArgumentException">As <see cref="Build"/>, or the text is no valid Unicode.</exception>
        public static byte[] BuildBytes(string userText)
        {
            return Utf8.GetBytes(Build(userText));
        }
    }
}
