using System;
using System.IO;
using System.Security.Cryptography;
using System.Text;

namespace MlxSentis.Editor
{
    /// <summary>
    /// The SHA-256 of a fixture's inputs: of each a line with name, type and sizes, then its elements. docs/sentis-dump.md
    /// of mlx-sentis has the definition.
    /// </summary>
    internal sealed class FixtureHash : IDisposable
    {
        private readonly SHA256 _algorithm = SHA256.Create();

        public void Add(FixtureInput input)
        {
            string line = input.Name + " " + input.Dtype + " " + string.Join(",", input.Shape) + "\n";
            Add(Encoding.UTF8.GetBytes(line));
            Add(input.Bytes);
        }

        public string Hexadecimal()
        {
            _algorithm.TransformFinalBlock(new byte[0], 0, 0);
            return Hexadecimal(_algorithm.Hash);
        }

        public static string OfFile(string path)
        {
            using (SHA256 algorithm = SHA256.Create())
            using (FileStream file = File.OpenRead(path))
            {
                return Hexadecimal(algorithm.ComputeHash(file));
            }
        }

        public void Dispose()
        {
            _algorithm.Dispose();
        }

        private void Add(byte[] bytes)
        {
            _algorithm.TransformBlock(bytes, 0, bytes.Length, null, 0);
        }

        private static string Hexadecimal(byte[] hash)
        {
            return BitConverter.ToString(hash).Replace("-", "").ToLowerInvariant();
        }
    }
}
