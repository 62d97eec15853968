using System;
using System.Collections.Generic;
using System.IO;
using System.Text;
using UnityEditor;
using UnityEngine;

namespace Unity.InferenceEngine
{
    /// <summary>
    /// Computes: every model is run by ONNX Runtime, in the process that started this one (tests/unity_engine.py). Lines of text, and
    /// raw bytes behind those that announce them.
    /// </summary>
    public static class Engine
    {
        private static readonly Stream From = Console.OpenStandardInput();
        private static readonly Stream To = Console.OpenStandardOutput();

        public static void Start()
        {
            AssetDatabase.Importer = Import;
        }

        internal static int[] Sizes(string text)
        {
            return text.Length == 0 ? new int[0] : Array.ConvertAll(text.Split(','), int.Parse);
        }

        internal static string[] Ask(string question, byte[] behind)
        {
            Send(question + "\n", behind);
            int count = int.Parse(Line());
            string[] lines = new string[count];
            for (int i = 0; i < count; i++)
            {
                lines[i] = Line();
            }

            return lines;
        }

        internal static void Run(
            string handle, Dictionary<string, Tensor> given, Dictionary<string, Tensor> outputs, BackendType backend)
        {
            Send("run " + given.Count + " " + handle + "\n", null);
            foreach (KeyValuePair<string, Tensor> one in given)
            {
                byte[] bytes = one.Value.Bytes();
                string kind = one.Value.dataType == DataType.Float ? "float" : "int";
                string sizes = string.Join(",", one.Value.shape.ToArray());
                Send(one.Key + " " + kind + " " + bytes.Length + " " + sizes + "\n", bytes);
            }

            string answer = Line();
            if (answer.StartsWith("error ", StringComparison.Ordinal))
            {
                throw new InvalidOperationException(answer.Substring(6));
            }

            for (int i = int.Parse(answer); i > 0; i--)
            {
                string[] words = Line().Split(' ');
                outputs[words[0]] = Received(words[1], new TensorShape(Sizes(words[3])), int.Parse(words[2]), backend);
            }
        }

        private static Tensor Received(string kind, TensorShape shape, int length, BackendType backend)
        {
            byte[] bytes = new byte[length];
            for (int at = 0; at < length;)
            {
                at += From.Read(bytes, at, length - at);
            }

            Tensor tensor;
            if (kind == "float")
            {
                Tensor<float> made = new Tensor<float>(shape);
                made.Fill(bytes);
                tensor = made;
            }
            else
            {
                Tensor<int> made = new Tensor<int>(shape);
                made.Fill(bytes);
                tensor = made;
            }

            tensor.Place = backend;
            tensor.IsPending = true;
            return tensor;
        }

        private static UnityEngine.Object Import(string path)
        {
            bool isWhole = true;
            foreach (string line in Ask("import " + path, null))
            {
                bool isError = line.StartsWith("error ", StringComparison.Ordinal);
                isWhole &= !isError;
                Application.Say(line.Substring(line.IndexOf(' ') + 1), isError ? LogType.Error : LogType.Warning);
            }

            return isWhole ? new ModelAsset { Path = path } : null;
        }

        private static void Send(string line, byte[] behind)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(line);
            To.Write(bytes, 0, bytes.Length);
            if (behind != null)
            {
                To.Write(behind, 0, behind.Length);
            }

            To.Flush();
        }

        private static string Line()
        {
            MemoryStream line = new MemoryStream();
            for (int next = From.ReadByte(); next != '\n'; next = From.ReadByte())
            {
                if (next < 0)
                {
                    throw new EndOfStreamException("the engine has ended");
                }

                line.WriteByte((byte)next);
            }

            return Encoding.UTF8.GetString(line.ToArray());
        }
    }
}
