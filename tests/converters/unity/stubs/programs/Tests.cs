using System;
using System.Collections.Generic;
using System.Globalization;
using System.Reflection;
using System.Text;
using System.Threading;
using NUnit.Framework;

// Runs every test of the assembly as the Test Runner does, and prints a line for each; then builds the prompts asked for.
internal static class Runner
{
    private static int Main(string[] arguments)
    {
        Console.OutputEncoding = new UTF8Encoding(false);
        Thread.CurrentThread.CurrentCulture = new CultureInfo("sv-SE"); // U+2212 as minus, a comma in decimals
        foreach (Type type in typeof(MlxSentis.Tests.TokenizerCheck).Assembly.GetTypes())
        {
            if (type.GetCustomAttribute<TestFixtureAttribute>() != null)
            {
                RunFixture(type);
            }
        }

        if (arguments.Length > 0 && arguments[0] == "prompts")
        {
            for (int i = 1; i < arguments.Length; i++)
            {
                Console.WriteLine("prompt " + i + ": " + Prompt(Unescaped(arguments[i])));
            }
        }

        if (arguments.Length > 0 && arguments[0] == "calls")
        {
            for (int i = 1; i < arguments.Length; i++)
            {
                Console.WriteLine("call " + i + ": " + Call(Unescaped(arguments[i])));
            }
        }

        if (arguments.Length > 0 && arguments[0] == "ids")
        {
            Dictionary<string, int[]> table = new Dictionary<string, int[]>();
            for (int i = 1; i < arguments.Length; i++)
            {
                string[] pair = arguments[i].Split(':');
                string[] ids = pair[1].Split(new[] { ',' }, StringSplitOptions.RemoveEmptyEntries);
                table[Unescaped(pair[0])] = Array.ConvertAll(ids, int.Parse);
            }

            Print("tokenizer", () => MlxSentis.Tests.TokenizerCheck.Run(text => table[text]));
        }

        return 0;
    }

    private static string Prompt(string said)
    {
        try
        {
            return Convert.ToBase64String(MlxSentis.PromptBuilder.BuildBytes(said));
        }
        catch (ArgumentException error)
        {
            return "refused, " + error.Message.Split('\n')[0];
        }
    }

    private static string Call(string answer)
    {
        MlxSentis.ToolCall call;
        return MlxSentis.ToolCall.TryRead(answer, out call) ? call.Name + " " + Spelled(call.Arguments) : "";
    }

    // Types kept apart, numbers by their bits, texts as hexadecimal UTF-8.
    private static string Spelled(object value)
    {
        if (value is IReadOnlyDictionary<string, object> members)
        {
            List<string> names = new List<string>(members.Keys);
            names.Sort(StringComparer.Ordinal);
            return "{" + string.Join(",", names.ConvertAll(name => Spelled(name) + ":" + Spelled(members[name]))) + "}";
        }

        if (value is List<object> items)
        {
            return "[" + string.Join(",", items.ConvertAll(Spelled)) + "]";
        }

        if (value is string text)
        {
            return "s" + BitConverter.ToString(Encoding.UTF8.GetBytes(text)).Replace("-", "").ToLowerInvariant();
        }

        if (value is double number)
        {
            return "d" + BitConverter.DoubleToInt64Bits(number).ToString("x16");
        }

        return value == null ? "null" : value is bool ? ((bool)value ? "true" : "false") : "i" + Whole((long)value);
    }

    private static string Whole(long number)
    {
        return number.ToString(CultureInfo.InvariantCulture);
    }

    private static void RunFixture(Type type)
    {
        object fixture = Activator.CreateInstance(type);
        foreach (MethodInfo method in type.GetMethods())
        {
            if (method.GetCustomAttribute<OneTimeSetUpAttribute>() != null)
            {
                Print(method.Name, () => method.Invoke(fixture, null));
            }
        }

        foreach (MethodInfo method in type.GetMethods())
        {
            if (method.GetCustomAttribute<TestAttribute>() != null)
            {
                Print(method.Name, () => method.Invoke(fixture, null));
            }
        }
    }

    private static void Print(string name, Action test)
    {
        try
        {
            test();
            Console.WriteLine("passed " + name);
        }
        catch (Exception error)
        {
            Exception cause = error is TargetInvocationException ? error.InnerException : error;
            Console.WriteLine("failed " + name + ": " + cause.Message.Split('\n')[0]);
        }
    }

    // Base64, so that a command line carries any text.
    private static string Unescaped(string base64)
    {
        return Encoding.UTF8.GetString(Convert.FromBase64String(base64));
    }
}
