using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.CompilerServices;
using System.Security.Cryptography;
using System.Text;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>The prompt_contract.json that lies beside this file, field by field.</summary>
    internal sealed class ContractFile
    {
        private const string Name = "prompt_contract.json";

        private readonly object _root;

        private ContractFile(string text)
        {
            // Version control may have written other line ends; they are not part of any field.
            Sha256 = Hash(Encoding.UTF8.GetBytes(text.Replace("\r\n", "\n")));
            _root = Json.Parse(text);
        }

        /// <summary>SHA-256 of the file with \n line ends, hexadecimal.</summary>
        public string Sha256 { get; }

        public static ContractFile BesideThisSource([CallerFilePath] string source = "")
        {
            string path = Path.Combine(Path.GetDirectoryName(Path.GetFullPath(source)) ?? "", Name);
            return new ContractFile(File.ReadAllText(path, new UTF8Encoding(false, true)));
        }

        public static string Hash(byte[] data)
        {
            using (SHA256 algorithm = SHA256.Create())
            {
                return BitConverter.ToString(algorithm.ComputeHash(data)).Replace("-", "").ToLowerInvariant();
            }
        }

        public static string FieldName(params string[] keys)
        {
            return string.Join(".", keys);
        }

        public object Value(params string[] keys)
        {
            object value = _root;
            foreach (string key in keys)
            {
                if (!(value is Dictionary<string, object> members) || !members.TryGetValue(key, out value))
                {
                    Assert.Fail(FieldName(keys) + ": " + Name + " has no such field");
                }
            }

            return value;
        }

        /// <summary>Returns a text, or null where the file says null.</summary>
        public string Text(params string[] keys)
        {
            object value = Value(keys);
            if (value != null && !(value is string))
            {
                Assert.Fail(FieldName(keys) + ": " + Name + " has no text there");
            }

            return (string)value;
        }

        /// <summary>Returns a number of 32 bits, or <paramref name="none"/> where the file says null.</summary>
        public int Number(int none, params string[] keys)
        {
            object value = Value(keys);
            return value == null ? none : Id(value, FieldName(keys));
        }

        public bool Flag(params string[] keys)
        {
            object value = Value(keys);
            if (!(value is bool))
            {
                Assert.Fail(FieldName(keys) + ": " + Name + " has neither true nor false there");
            }

            return (bool)value;
        }

        public List<int> Ids(params string[] keys)
        {
            List<int> ids = new List<int>();
            foreach (object item in Items(keys))
            {
                ids.Add(Id(item, FieldName(keys)));
            }

            return ids;
        }

        public List<string> Texts(params string[] keys)
        {
            List<string> texts = new List<string>();
            foreach (object item in Items(keys))
            {
                texts.Add(item as string);
            }

            return texts;
        }

        /// <summary>Returns the names of an object's members in the order of the file.</summary>
        public List<string> Names(params string[] keys)
        {
            Dictionary<string, object> members = Value(keys) as Dictionary<string, object>;
            if (members == null)
            {
                Assert.Fail(FieldName(keys) + ": " + Name + " has no object there");
            }

            return new List<string>(members.Keys);
        }

        private List<object> Items(string[] keys)
        {
            List<object> items = Value(keys) as List<object>;
            if (items == null)
            {
                Assert.Fail(FieldName(keys) + ": " + Name + " has no array there");
            }

            return items;
        }

        private static int Id(object value, string field)
        {
            if (!(value is long) || (long)value < int.MinValue || (long)value > int.MaxValue)
            {
                Assert.Fail(field + ": " + Name + " has no whole number of 32 bits there");
            }

            return (int)(long)value;
        }
    }
}
