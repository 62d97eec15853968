#if MLX_SENTIS_TOKENIZER
using System.IO;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>Holds Sentis' own tokenizer against the ids that the model was trained on.</summary>
    [TestFixture]
    public sealed class TokenizerTests
    {
        [Test]
        public void SentisTokenizerGivesTheTrainedIds()
        {
            string file = KitFilesTests.InKit("Tokenizer/tokenizer.json");
            TokenizerCheck.Run(new SentisTokenizer(File.ReadAllText(file)).Encode);
        }
    }
}
#endif
