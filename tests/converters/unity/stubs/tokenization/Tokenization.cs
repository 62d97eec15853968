using System;
using System.Collections.Generic;

namespace Unity.InferenceEngine.Tokenization
{
    public interface IEncoding
    {
        int GetIds(ICollection<int> output);
    }

    public interface ITokenizer
    {
        IEncoding Encode(string inputA, string inputB = null, bool addSpecialTokens = true);

        string Decode(IReadOnlyList<int> input, bool skipSpecialTokens = false);
    }
}

namespace Unity.InferenceEngine.Tokenization.Parsers.HuggingFace
{
    public class HuggingFaceParser
    {
        public static HuggingFaceParser GetDefault()
        {
            return new HuggingFaceParser();
        }

        // Nothing here tokenises: what is said here is what a package that cannot read a file would say.
        public ITokenizer Parse(string content)
        {
            throw new NotSupportedException("a stub");
        }
    }
}
