using System;
using System.Collections.Generic;
using System.Globalization;
using System.Threading;
using MlxSentis;
using Unity.InferenceEngine;
using UnityEditor;

// Answers a prompt, each line of the input one, and tells how many tensors and bytes the steps took.
// Arguments: model, backend, maxTokens, maxNewTokens, refusal id, wait, poll or interrupt; then prompts as ids with commas.
internal static class Program
{
    private static int Main(string[] words)
    {
        Thread.CurrentThread.CurrentCulture = new CultureInfo("sv-SE");
        Engine.Start();
        AssetDatabase.ImportAsset(words[0], ImportAssetOptions.ForceUpdate | ImportAssetOptions.ForceSynchronousImport);
        Model model = ModelLoader.Load(AssetDatabase.LoadAssetAtPath<ModelAsset>(words[0]));
        BackendType backend = (BackendType)Enum.Parse(typeof(BackendType), words[1]);
        int atStart = Ledger.Alive;
        using (GreedyDecoder decoder = new GreedyDecoder(model, backend, int.Parse(words[2])))
        {
            for (int i = 6; i < words.Length; i++)
            {
                Answer(decoder, Ids(words[i]), int.Parse(words[3]), int.Parse(words[4]), words[5]);
            }
        }

        Console.Error.WriteLine("left " + (Ledger.Alive - atStart) + " " + Worker.Workers);
        return 0;
    }

    private static void Answer(GreedyDecoder decoder, int[] prompt, int maxNewTokens, int refusalId, string how)
    {
        try
        {
            bool polls = how != "wait";
            if (how == "interrupt")
            {
                decoder.BeginWithoutWaiting(new[] { prompt[prompt.Length - 1], prompt[0] }, refusalId);
                decoder.Poll();
            }

            int waits = Ledger.Waits;
            if (polls)
            {
                decoder.BeginWithoutWaiting(prompt, refusalId);
            }
            else
            {
                decoder.Begin(prompt, refusalId);
            }

            int made = Ledger.Made;
            int alive = Ledger.Alive;
            long bytes = Ledger.Bytes;
            int frames = 0;
            while (decoder.Ids.Count < maxNewTokens)
            {
                while (polls && !decoder.Poll())
                {
                    frames++;
                }

                if (!decoder.Step())
                {
                    break;
                }

                // What Mono makes when the prompt's row is read for the very first time is not the loop's.
                bytes = polls && decoder.Ids.Count == 1 ? Ledger.Bytes : bytes;
            }

            bytes = Ledger.Bytes - bytes;
            string ids = string.Join(",", decoder.Ids);
            string margin = decoder.Margin.ToString("R", CultureInfo.InvariantCulture);
            string state = decoder.IsFull ? "full" : decoder.IsDone ? "done" : "cut";
            Console.Error.WriteLine(
                "answer " + (Ledger.Made - made) + " " + (Ledger.Alive - alive) + " " + bytes + " " + margin + " " + state + " "
                + ids + " " + (Ledger.Waits - waits) + " " + frames);
        }
        catch (Exception error)
        {
            Console.Error.WriteLine("thrown " + error.GetType().Name + " " + error.Message.Split('\n')[0]);
        }
    }

    private static int[] Ids(string text)
    {
        string[] words = text.Split(new[] { ',' }, StringSplitOptions.RemoveEmptyEntries);
        return Array.ConvertAll(words, word => int.Parse(word, CultureInfo.InvariantCulture));
    }
}
