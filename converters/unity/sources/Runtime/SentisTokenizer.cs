#if MLX_SENTIS_TOKENIZER
using System.Collections.Generic;
using Unity.InferenceEngine.Tokenization;
using Unity.InferenceEngine.Tokenization.Parsers.HuggingFace;

namespace MlxSentis
{
    /// <summary>
    /// Sentis' own tokenizer, made of the kit's tokenizer.json (package 2.5 or newer; on 2.4 this class is not there).
    /// </summary>
    public sealed class SentisTokenizer
    {
        private readonly ITokenizer _tokenizer;

        /// <param name="json">The text of Tokenizer/tokenizer.json, for example of a TextAsset.</param>
        public SentisTokenizer(string json)
        {
            _tokenizer = HuggingFaceParser.GetDefault().Parse(json);
        }

        /// <summary>Returns a prompt's ids. None is added: the prompt already holds its special tokens.</summary>
        public List<int> Encode(string prompt)
        {
            List<int> ids = new List<int>();
            _tokenizer.Encode(prompt, null, false).GetIds(ids);
            return ids;
        }

        /// <summary>Returns the text of an answer's ids.</summary>
        public string Decode(IReadOnlyList<int> ids)
        {
            return _tokenizer.Decode(ids, false);
        }
    }
}
#endif
