using System;
using Unity.InferenceEngine;
using UnityEngine;

namespace MlxSentis.Editor
{
    /// <summary>Raw bytes to Sentis' tensors and back. Sentis computes with float32 and int32 alone.</summary>
    internal static class TensorBytes
    {
        /// <summary>Returns an input as Sentis takes it: whole numbers and bool as int32, floats as float32.</summary>
        public static Tensor ToTensor(FixtureInput input)
        {
            TensorShape shape = new TensorShape(input.Shape);
            bool isFloat = input.Dtype.StartsWith("float", StringComparison.Ordinal);
            if (shape.length == 0)
            {
                return isFloat ? (Tensor)new Tensor<float>(shape) : new Tensor<int>(shape);
            }

            Array values = isFloat ? (Array)Floats(input) : Integers(input);
            if (values.Length != shape.length)
            {
                throw new FormatException(
                    FormattableString.Invariant($"{input.Name}: found {values.Length} elements, wanted {shape.length}"));
            }

            return isFloat
                ? (Tensor)new Tensor<float>(shape, (float[])values)
                : new Tensor<int>(shape, (int[])values);
        }

        /// <summary>Returns an output's elements, little-endian; waits until they are computed.</summary>
        public static byte[] Of(Tensor tensor, out string dtype)
        {
            bool isFloat = tensor.dataType == DataType.Float;
            dtype = isFloat ? "float32" : "int32";
            if (tensor.shape.length == 0)
            {
                return new byte[0];
            }

            Array values = isFloat
                ? (Array)((Tensor<float>)tensor).DownloadToArray()
                : ((Tensor<int>)tensor).DownloadToArray();
            byte[] bytes = new byte[values.Length * 4];
            Buffer.BlockCopy(values, 0, bytes, 0, bytes.Length);
            return bytes;
        }

        private static float[] Floats(FixtureInput input)
        {
            byte[] bytes = input.Bytes;
            switch (input.Dtype)
            {
                case "float32":
                    float[] values = new float[bytes.Length / 4];
                    Buffer.BlockCopy(bytes, 0, values, 0, values.Length * 4);
                    return values;
                case "float16":
                    return Each(bytes, 2, at => Mathf.HalfToFloat(BitConverter.ToUInt16(bytes, at)));
                case "float64":
                    return Each(bytes, 8, at => (float)BitConverter.ToDouble(bytes, at));
                default:
                    throw new FormatException(input.Name + ": type " + input.Dtype + " is none that Sentis takes");
            }
        }

        private static int[] Integers(FixtureInput input)
        {
            byte[] bytes = input.Bytes;
            switch (input.Dtype)
            {
                case "int64":
                    return Each(bytes, 8, at => Saturated(BitConverter.ToInt64(bytes, at)));
                case "int32":
                    return Each(bytes, 4, at => BitConverter.ToInt32(bytes, at));
                case "int16":
                    return Each(bytes, 2, at => (int)BitConverter.ToInt16(bytes, at));
                case "int8":
                    return Each(bytes, 1, at => (int)(sbyte)bytes[at]);
                case "uint8":
                case "bool":
                    return Each(bytes, 1, at => (int)bytes[at]);
                case "uint16":
                    return Each(bytes, 2, at => (int)BitConverter.ToUInt16(bytes, at));
                case "uint32":
                    return Each(bytes, 4, at => Saturated(BitConverter.ToUInt32(bytes, at)));
                default:
                    throw new FormatException(input.Name + ": type " + input.Dtype + " is none that Sentis takes");
            }
        }

        private static T[] Each<T>(byte[] bytes, int size, Func<int, T> read)
        {
            T[] values = new T[bytes.Length / size];
            for (int i = 0; i < values.Length; i++)
            {
                values[i] = read(i * size);
            }

            return values;
        }

        private static int Saturated(long value)
        {
            return (int)Math.Max(int.MinValue, Math.Min(int.MaxValue, value));
        }
    }
}
