using System;

namespace MlxSentis
{
    /// <summary>
    /// The log-mel spectrogram that Whisper hears: 16 kHz, frames of 400 samples every 160, Hann window, mirrored ends,
    /// Slaney's mel scale with filters of equal area, log10, nothing more than 8 below the loudest, then (x + 4) / 4.
    /// Made once and used for every clip; it makes no garbage.
    /// </summary>
    public sealed class LogMel
    {
        /// <summary>Samples a second.</summary>
        public const int SampleRate = 16000;

        private const int Frame = 400;
        private const int Hop = 160;
        private const int Bins = Frame / 2 + 1;
        private const double Floor = 1e-10;

        private readonly Spectrum _spectrum = new Spectrum(Frame);
        private readonly double[] _window = new double[Frame];
        private readonly double[][] _filters;
        private readonly double[] _frame = new double[Frame];
        private readonly double[] _power = new double[Bins];
        private readonly int _samples;

        /// <param name="bands">Mel bands: 80, or 128 for large-v3 and turbo.</param>
        /// <param name="seconds">Seconds that the model hears at once; shorter clips are filled with silence.</param>
        public LogMel(int bands = 80, int seconds = 30)
        {
            Bands = bands;
            _samples = seconds * SampleRate;
            Frames = _samples / Hop;
            for (int i = 0; i < Frame; i++)
            {
                _window[i] = 0.5 - 0.5 * Math.Cos(2 * Math.PI * i / Frame);
            }

            _filters = FiltersOf(bands);
        }

        /// <summary>Mel bands: the rows of the spectrogram.</summary>
        public int Bands { get; }

        /// <summary>Frames: the columns of the spectrogram.</summary>
        public int Frames { get; }

        /// <summary>Writes the spectrogram [Bands, Frames] of a clip.</summary>
        /// <param name="clip">Samples from -1 to 1; what is longer than the model hears is left out.</param>
        /// <param name="mels">Bands · Frames numbers, all of them written.</param>
        public void Fill(float[] clip, float[] mels)
        {
            if (mels.Length < Bands * Frames)
            {
                throw new ArgumentException("fewer numbers than Bands times Frames", nameof(mels));
            }

            float loudest = float.NegativeInfinity;
            for (int frame = 0; frame < Frames; frame++)
            {
                Cut(clip, frame * Hop - Frame / 2);
                _spectrum.Power(_frame, _power);
                for (int band = 0; band < Bands; band++)
                {
                    float level = (float)Math.Log10(Math.Max(Floor, Heard(_filters[band])));
                    loudest = Math.Max(loudest, level);
                    mels[band * Frames + frame] = level;
                }
            }

            for (int i = 0; i < Bands * Frames; i++)
            {
                mels[i] = (Math.Max(mels[i], loudest - 8f) + 4f) / 4f;
            }
        }

        private void Cut(float[] clip, int start)
        {
            for (int i = 0; i < Frame; i++)
            {
                int at = Math.Abs(start + i); // mirrored about the first sample, and below about the last
                at = at < _samples ? at : 2 * (_samples - 1) - at;
                _frame[i] = at < clip.Length ? clip[at] * _window[i] : 0;
            }
        }

        private double Heard(double[] filter)
        {
            double sum = 0;
            for (int i = 0; i < Bins; i++)
            {
                sum += filter[i] * _power[i];
            }

            return sum;
        }

        // Triangles between neighbouring mels, each of area 1 over hertz.
        private static double[][] FiltersOf(int bands)
        {
            double[] edges = new double[bands + 2];
            double highest = ToMel(SampleRate / 2.0);
            for (int i = 0; i < edges.Length; i++)
            {
                edges[i] = ToHertz(highest * i / (bands + 1));
            }

            double[][] filters = new double[bands][];
            for (int band = 0; band < bands; band++)
            {
                filters[band] = new double[Bins];
                for (int i = 0; i < Bins; i++)
                {
                    double hertz = i * (double)SampleRate / Frame;
                    double rising = (hertz - edges[band]) / (edges[band + 1] - edges[band]);
                    double falling = (edges[band + 2] - hertz) / (edges[band + 2] - edges[band + 1]);
                    double height = Math.Max(0, Math.Min(rising, falling));
                    filters[band][i] = height * 2 / (edges[band + 2] - edges[band]);
                }
            }

            return filters;
        }

        // Slaney's scale: 200/3 hertz a mel up to 1000 hertz, then 27 mels for each factor of 6.4.
        private static double ToMel(double hertz)
        {
            return hertz < 1000 ? hertz * 3 / 200 : 15 + 27 * Math.Log(hertz / 1000) / Math.Log(6.4);
        }

        private static double ToHertz(double mel)
        {
            return mel < 15 ? mel * 200 / 3 : 1000 * Math.Exp((mel - 15) * Math.Log(6.4) / 27);
        }
    }
}
