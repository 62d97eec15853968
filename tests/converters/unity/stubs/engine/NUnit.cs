using System;

namespace NUnit.Framework
{
    [AttributeUsage(AttributeTargets.Class)]
    public sealed class TestFixtureAttribute : Attribute { }

    [AttributeUsage(AttributeTargets.Method)]
    public sealed class TestAttribute : Attribute { }

    [AttributeUsage(AttributeTargets.Method)]
    public sealed class OneTimeSetUpAttribute : Attribute { }

    public sealed class AssertionException : Exception
    {
        public AssertionException(string message) : base(message) { }
    }

    public delegate void TestDelegate();

    public static class Assert
    {
        public static void Fail(string message)
        {
            throw new AssertionException(message);
        }

        public static T Throws<T>(TestDelegate code) where T : Exception
        {
            try
            {
                code();
            }
            catch (T wanted)
            {
                return wanted;
            }

            throw new AssertionException("nothing was thrown, wanted " + typeof(T).Name);
        }
    }
}
