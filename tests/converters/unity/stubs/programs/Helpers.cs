using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Threading;
using MlxSentis;
using Unity.InferenceEngine;
using UnityEditor;

// Runs one helper on what lies in a folder: raw arrays in, raw arrays out. Arguments: helper, folder, numbers.
internal static class Program
{
    private static string _folder;

    private static int Main(string[] words)
    {
        Thread.CurrentThread.CurrentCulture = new CultureInfo("sv-SE");
        _folder = words[1];
        double[] numbers = new double[words.Length - 2];
        for (int i = 0; i < numbers.Length; i++)
        {
            numbers[i] = double.Parse(words[i + 2], CultureInfo.InvariantCulture);
        }

        switch (words[0])
        {
            case "nms":
                Suppress(numbers);
                break;
            case "letterbox":
                Fit((int)numbers[0], (int)numbers[1], (int)numbers[2], numbers[3] > 0);
                break;
            case "log-mel":
                Hear((int)numbers[0], (int)numbers[1]);
                break;
            default:
                Stream((int)numbers[0], (int)numbers[1], numbers[2] > 0);
                break;
        }

        return 0;
    }

    // Twice with one object: what is left of the frame before must not count.
    private static void Suppress(double[] numbers)
    {
        float[] scores = Floats("scores");
        int[] classes = File.Exists(Path.Combine(_folder, "classes")) ? Array.ConvertAll(Floats("classes"), x => (int)x) : null;
        BoxFormat format = numbers[2] > 0 ? BoxFormat.Centre : BoxFormat.Corners;
        List<int> kept = new List<int> { 7 };
        NonMaxSuppression suppression = new NonMaxSuppression(scores.Length);
        float[] all = new float[scores.Length];
        for (int i = 0; i < all.Length; i++)
        {
            all[i] = 1 + i;
        }

        suppression.Select(Floats("boxes"), format, all, null, scores.Length, 0, 0, kept);
        suppression.Select(
            Floats("boxes"), format, scores, classes, scores.Length, (float)numbers[0], (float)numbers[1], kept);
        Write("kept", kept.ConvertAll(x => (float)x).ToArray());
    }

    private static void Fit(int size, int width, int height, bool isBottomUp)
    {
        Letterbox box = new Letterbox(size);
        float[] square = new float[3 * size * size];
        box.Fill(File.ReadAllBytes(Path.Combine(_folder, "pixels")), width, height, isBottomUp, square);
        Write("square", square);
        Write("places", new[] { box.Scale, box.Left, box.Top, box.ImageX(size / 2f), box.ImageY(size / 2f) });
    }

    private static void Hear(int bands, int seconds)
    {
        LogMel mel = new LogMel(bands, seconds);
        float[] mels = new float[mel.Bands * mel.Frames];
        mel.Fill(new float[] { 1, -1, 1 }, mels);
        mel.Fill(Floats("clip"), mels);
        Write("mels", mels);
    }

    // A model of input [1, context + chunk] and state: with its context, or as if a harness forgot it.
    private static void Stream(int context, int chunk, bool carries)
    {
        Engine.Start();
        AssetDatabase.ImportAsset(
            "Assets/stream.onnx", ImportAssetOptions.ForceUpdate | ImportAssetOptions.ForceSynchronousImport);
        Model model = ModelLoader.Load(AssetDatabase.LoadAssetAtPath<ModelAsset>("Assets/stream.onnx"));
        float[] clip = Floats("clip");
        List<float> said = new List<float>();
        int atStart = Ledger.Alive;
        using (Worker worker = new Worker(model, BackendType.CPU))
        using (CarriedState state = new CarriedState(new[] { "state" }, new[] { "state_out" }, new[] { new TensorShape(1, 3) }))
        using (Tensor<float> input = new Tensor<float>(new TensorShape(1, context + chunk)))
        {
            ChunkContext before = new ChunkContext(context);
            float[] heard = new float[context + chunk];
            float[] piece = new float[chunk];
            for (int stream = 0; stream < 2; stream++)
            {
                before.Clear();
                state.Clear();
                for (int at = 0; at + chunk <= clip.Length; at += chunk)
                {
                    Array.Copy(clip, at, piece, 0, chunk);
                    before.Fill(piece, heard);
                    input.Upload(heard);
                    worker.SetInput("x", input);
                    state.Feed(worker);
                    worker.Schedule();
                    if (carries)
                    {
                        state.Take(worker);
                    }

                    said.AddRange(((Tensor<float>)worker.PeekOutput("y")).DownloadToArray());
                }
            }
        }

        Write("said", said.ToArray());
        Console.Error.WriteLine("left " + (Ledger.Alive - atStart));
    }

    private static float[] Floats(string name)
    {
        byte[] bytes = File.ReadAllBytes(Path.Combine(_folder, name));
        float[] values = new float[bytes.Length / 4];
        Buffer.BlockCopy(bytes, 0, values, 0, bytes.Length);
        return values;
    }

    private static void Write(string name, float[] values)
    {
        byte[] bytes = new byte[4 * values.Length];
        Buffer.BlockCopy(values, 0, bytes, 0, bytes.Length);
        File.WriteAllBytes(Path.Combine(_folder, name), bytes);
    }
}
