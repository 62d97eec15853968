using System;
using System.Globalization;
using System.Threading;
using Unity.InferenceEngine;
using UnityEditor;

// What -executeMethod does, and what the editor's exit code would be.
internal static class Program
{
    private static int Main()
    {
        Thread.CurrentThread.CurrentCulture = new CultureInfo("sv-SE");
        Engine.Start();
        int atStart = Ledger.Alive;
        try
        {
            MlxSentis.Editor.ParityHarness.Run();
            return 99; // in batch mode it must end the editor itself
        }
        catch (ExitedException exited)
        {
            Console.Error.WriteLine("left " + (Ledger.Alive - atStart) + " " + Worker.Workers);
            return exited.Code;
        }
    }
}
