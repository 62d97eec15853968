using System;
using System.IO;

// Signatures that the kit uses, written from the documentation; what they do is the little that its tests need.
namespace UnityEngine
{
    public enum LogType { Error, Assert, Warning, Log, Exception }

    public class Object { }

    public class ScriptableObject : Object { }

    public class TextAsset : Object
    {
        public string text { get; set; }
    }

    public class MonoBehaviour : Object { }

    [AttributeUsage(AttributeTargets.Field)]
    public sealed class SerializeField : Attribute { }

    public static class Application
    {
        public delegate void LogCallback(string condition, string stackTrace, LogType type);

        public static event LogCallback logMessageReceived;

        public static string dataPath
        {
            get { return Path.Combine(Environment.GetEnvironmentVariable("STUB_PROJECT"), "Assets"); }
        }

        public static string unityVersion
        {
            get { return "6000.0.1f1"; }
        }

        public static bool isBatchMode
        {
            get { return true; }
        }

        public static void Say(string text, LogType type)
        {
            if (logMessageReceived != null)
            {
                logMessageReceived(text, "", type);
            }
        }
    }

    public static class Debug
    {
        public static void Log(object message) { Say(message, LogType.Log); }

        public static void LogError(object message) { Say(message, LogType.Error); }

        private static void Say(object message, LogType type)
        {
            Console.Error.WriteLine(type + ": " + message);
            Application.Say(message.ToString(), type);
        }
    }

    public static class SystemInfo
    {
        private static bool HasGraphics
        {
            get { return Environment.GetEnvironmentVariable("STUB_GRAPHICS") == "1"; }
        }

        public static string processorType { get { return "a processor"; } }

        public static string graphicsDeviceName { get { return "a graphics device"; } }

        public static bool supportsComputeShaders { get { return true; } }

        public static Rendering.GraphicsDeviceType graphicsDeviceType
        {
            get { return HasGraphics ? Rendering.GraphicsDeviceType.Vulkan : Rendering.GraphicsDeviceType.Null; }
        }
    }

    public static class Mathf
    {
        public static float HalfToFloat(ushort half)
        {
            int exponent = (half >> 10) & 31;
            double fraction = (half & 1023) / 1024.0;
            double size = exponent == 0 ? fraction * Math.Pow(2, -14) : (1 + fraction) * Math.Pow(2, exponent - 15);
            if (exponent == 31)
            {
                size = fraction > 0 ? double.NaN : double.PositiveInfinity;
            }

            return (float)((half >> 15) == 1 ? -size : size);
        }
    }
}

namespace UnityEngine.Rendering
{
    public enum GraphicsDeviceType { Null = 4, Metal = 16, Vulkan = 21 }
}

namespace Unity.Collections
{
    public struct NativeArray<T> where T : struct
    {
        private readonly T[] _data;

        public NativeArray(T[] data)
        {
            _data = data;
        }

        public int Length { get { return _data.Length; } }

        public T this[int index] { get { return _data[index]; } }

        public static void Copy(NativeArray<T> src, int srcIndex, T[] dst, int dstIndex, int length)
        {
            Array.Copy(src._data, srcIndex, dst, dstIndex, length);
        }

        public static void Copy(ReadOnly src, int srcIndex, T[] dst, int dstIndex, int length)
        {
            src.CopyTo(srcIndex, dst, dstIndex, length);
        }

        public struct ReadOnly
        {
            private readonly T[] _data;

            public ReadOnly(T[] data)
            {
                _data = data;
            }

            public int Length { get { return _data.Length; } }

            public T this[int index] { get { return _data[index]; } }

            public void CopyTo(int from, T[] dst, int to, int length)
            {
                Array.Copy(_data, from, dst, to, length);
            }
        }
    }
}
