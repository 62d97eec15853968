using System;
using System.Collections.Generic;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>
    /// Holds the game's tokenizer against the ids that the model was trained on. Call it from a test of your own:
    /// <code>[Test] public void TokenizerIsTheTrainedOne() { TokenizerCheck.Run(text =&gt; myTokenizer.Encode(text)); }</code>
    /// </summary>
    public static class TokenizerCheck
    {
        /// <param name="encode">Text to ids, special tokens in the text understood, none added.</param>
        public static void Run(Func<string, IReadOnlyList<int>> encode)
        {
            ContractFile file = ContractFile.BesideThisSource();
            Compare(file, encode, PromptSamples.Leading.Rendered, "ids");
            foreach (PromptSample sample in PromptSamples.Others)
            {
                Compare(file, encode, sample.Rendered, sample.Field("ids"));
            }

            foreach (string name in file.Names("pieces", "probes"))
            {
                string text = file.Text("pieces", "probes", name, "rendered");
                Compare(file, encode, text, "pieces", "probes", name, "ids");
            }

            foreach (string name in file.Names("tokenizer_vectors"))
            {
                string text = file.Text("tokenizer_vectors", name, "text");
                Compare(file, encode, text, "tokenizer_vectors", name, "ids");
            }
        }

        private static void Compare(
            ContractFile file, Func<string, IReadOnlyList<int>> encode, string text, params string[] keys)
        {
            string field = ContractFile.FieldName(keys);
            IReadOnlyList<int> found = encode(text);
            List<int> wanted = file.Ids(keys);
            if (BeginsTwice(found) && !BeginsTwice(wanted))
            {
                Assert.Fail(field + ": the begin token is there twice: the tokenizer adds one to the prompt's own");
            }

            FieldCheck.Ids(field, found, wanted);
        }

        private static bool BeginsTwice(IReadOnlyList<int> ids)
        {
            int bos = PromptContract.BosId;
            return bos >= 0 && ids.Count > 1 && ids[0] == bos && ids[1] == bos;
        }
    }
}
