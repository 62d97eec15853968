using System;
using System.IO;
using System.Runtime.CompilerServices;
using System.Security.Cryptography;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>Holds the kit's large files against what its code was written for.</summary>
    [TestFixture]
    public sealed class KitFilesTests
    {
        [Test]
        public void TheModelIsTheOneThatWasMeasured()
        {
            using (SHA256 algorithm = SHA256.Create())
            using (FileStream file = File.OpenRead(InKit(ModelConstants.File)))
            {
                string found = BitConverter.ToString(algorithm.ComputeHash(file)).Replace("-", "").ToLowerInvariant();
                FieldCheck.Text(ModelConstants.File + " (SHA-256)", found, ModelConstants.FileSha256);
            }
        }

        /// <summary>Returns the path of one of the kit's files, from the place of the test that asks.</summary>
        internal static string InKit(string name, [CallerFilePath] string source = "")
        {
            string folder = Path.GetDirectoryName(Path.GetFullPath(source)) ?? "";
            return Path.GetFullPath(Path.Combine(folder, "..", "..", name));
        }
    }
}
