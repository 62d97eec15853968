using System;
using System.Collections.Generic;
using System.IO;
using System.Text;

namespace MlxSentis.Editor
{
    /// <summary>One input of a fixture: what fixtures.json says of it, and its bytes.</summary>
    internal sealed class FixtureInput
    {
        public FixtureInput(string name, string dtype, int[] shape, byte[] bytes)
        {
            Name = name;
            Dtype = dtype;
            Shape = shape;
            Bytes = bytes;
        }

        public string Name { get; }

        public string Dtype { get; }

        public int[] Shape { get; }

        /// <summary>The elements, little-endian, last axis fastest.</summary>
        public byte[] Bytes { get; }
    }

    /// <summary>Inputs to run a model on.</summary>
    internal sealed class Fixture
    {
        public Fixture(string name, string sha256, List<FixtureInput> inputs)
        {
            Name = name;
            Sha256 = sha256;
            Inputs = inputs;
        }

        public string Name { get; }

        /// <summary>The hash of the inputs that were read; it is what fixtures.json says, or reading them failed.</summary>
        public string Sha256 { get; }

        public List<FixtureInput> Inputs { get; }
    }

    /// <summary>A model of fixtures.json. Fixtures are read when they are asked for: they may be large.</summary>
    internal sealed class FixtureModel
    {
        private readonly FixtureFile _file;
        private readonly List<object> _fixtures;

        public FixtureModel(FixtureFile file, object entry)
        {
            _file = file;
            ModelFile = file.PathOf(FixtureFile.Text(entry, "file"));
            Sha256 = FixtureFile.Text(entry, "sha256");
            _fixtures = FixtureFile.Items(entry, "fixtures");
            foreach (object side in FixtureFile.Items(entry, "side_files"))
            {
                SideFiles.Add((string)side);
            }
        }

        public string ModelFile { get; }

        public string Sha256 { get; }

        /// <summary>Names of files with external data; they lie beside the model.</summary>
        public List<string> SideFiles { get; } = new List<string>();

        public IEnumerable<Fixture> Fixtures()
        {
            foreach (object entry in _fixtures)
            {
                yield return _file.Read(entry);
            }
        }
    }

    /// <summary>The fixtures.json of a kit, and the raw bytes that lie beside it.</summary>
    internal sealed class FixtureFile
    {
        public const string Name = "fixtures.json";
        private const string Schema = "mlx-sentis/sentis-fixtures/1";

        private readonly string _folder;

        public FixtureFile(string path)
        {
            _folder = Path.GetDirectoryName(Path.GetFullPath(path)) ?? "";
            object root = Json.Parse(File.ReadAllText(path, new UTF8Encoding(false, true)));
            string schema = Text(root, "schema");
            if (schema != Schema)
            {
                throw new FormatException(path + ": schema found " + schema + ", wanted " + Schema);
            }

            foreach (object entry in Items(root, "models"))
            {
                Models.Add(new FixtureModel(this, entry));
            }
        }

        public List<FixtureModel> Models { get; } = new List<FixtureModel>();

        public string PathOf(string relative)
        {
            return Path.GetFullPath(Path.Combine(_folder, relative));
        }

        public Fixture Read(object entry)
        {
            string name = Text(entry, "name");
            List<FixtureInput> inputs = new List<FixtureInput>();
            using (FixtureHash hash = new FixtureHash())
            {
                foreach (object input in Items(entry, "inputs"))
                {
                    inputs.Add(ReadInput(input));
                    hash.Add(inputs[inputs.Count - 1]);
                }

                string found = hash.Hexadecimal();
                string wanted = Text(entry, "sha256");
                if (found != wanted)
                {
                    throw new FormatException(name + ": the inputs' hash is " + found + ", fixtures.json says " + wanted);
                }

                return new Fixture(name, found, inputs);
            }
        }

        public static string Text(object entry, string key)
        {
            return Value(entry, key) as string ?? throw new FormatException(Name + ": no text " + key);
        }

        public static List<object> Items(object entry, string key)
        {
            return Value(entry, key) as List<object> ?? throw new FormatException(Name + ": no array " + key);
        }

        private static object Value(object entry, string key)
        {
            object value = null;
            bool isThere = entry is Dictionary<string, object> members && members.TryGetValue(key, out value);
            return isThere ? value : throw new FormatException(Name + ": no field " + key);
        }

        private FixtureInput ReadInput(object entry)
        {
            List<object> sizes = Items(entry, "shape");
            int[] shape = new int[sizes.Count];
            for (int i = 0; i < shape.Length; i++)
            {
                shape[i] = checked((int)(long)sizes[i]);
            }

            string file = Value(entry, "file") as string;
            byte[] bytes = file == null ? new byte[0] : File.ReadAllBytes(PathOf(file));
            return new FixtureInput(Text(entry, "name"), Text(entry, "dtype"), shape, bytes);
        }
    }
}
