using System;
using System.Globalization;
using MlxSentis;

// Answers and margins in turns; tells which calls the gate lets through.
internal static class Program
{
    private static int Main(string[] words)
    {
        for (int i = 0; i < words.Length; i += 2)
        {
            float margin = words[i + 1] == "nan" ? float.NaN : float.Parse(words[i + 1], CultureInfo.InvariantCulture);
            ToolCall call;
            Console.WriteLine(CallGate.TryPass(words[i], margin, out call) ? call.Name : "refused");
        }

        return 0;
    }
}
