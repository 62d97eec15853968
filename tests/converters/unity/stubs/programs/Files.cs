using System;
using System.Reflection;
using NUnit.Framework;

// Runs every test of a kit's assembly, and prints a line for each; for kits without a prompt builder.
internal static class Runner
{
    private static int Main()
    {
        foreach (Type type in typeof(MlxSentis.Tests.KitFilesTests).Assembly.GetTypes())
        {
            if (type.GetCustomAttribute<TestFixtureAttribute>() == null)
            {
                continue;
            }

            object fixture = Activator.CreateInstance(type);
            foreach (MethodInfo method in type.GetMethods())
            {
                if (method.GetCustomAttribute<TestAttribute>() != null)
                {
                    Run(method, fixture);
                }
            }
        }

        return 0;
    }

    private static void Run(MethodInfo method, object fixture)
    {
        try
        {
            method.Invoke(fixture, null);
            Console.WriteLine("passed " + method.Name);
        }
        catch (TargetInvocationException error)
        {
            Console.WriteLine("failed " + method.Name + ": " + error.InnerException.Message.Split('\n')[0]);
        }
    }
}
