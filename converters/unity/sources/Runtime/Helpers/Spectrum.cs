using System;

namespace MlxSentis
{
    /// <summary>
    /// The power spectrum of a frame of real numbers, for any length: halves are taken apart while the length is even, what
    /// is left is summed directly. Made once, and makes no garbage.
    /// </summary>
    internal sealed class Spectrum
    {
        private readonly int _length;
        private readonly int _odd;
        private readonly double[] _cosines;
        private readonly double[] _sines;
        private double[] _real;
        private double[] _imaginary;
        private double[] _nextReal;
        private double[] _nextImaginary;

        public Spectrum(int length)
        {
            _length = length;
            _odd = length;
            while (_odd % 2 == 0)
            {
                _odd /= 2;
            }

            _cosines = new double[length];
            _sines = new double[length];
            for (int i = 0; i < length; i++)
            {
                _cosines[i] = Math.Cos(2 * Math.PI * i / length);
                _sines[i] = Math.Sin(2 * Math.PI * i / length);
            }

            _real = new double[length];
            _imaginary = new double[length];
            _nextReal = new double[length];
            _nextImaginary = new double[length];
        }

        /// <summary>Writes |X[k]|² for k from 0 to half the length.</summary>
        public void Power(double[] frame, double[] power)
        {
            int count = _length / _odd;
            for (int start = 0; start < count; start++)
            {
                SumDirectly(frame, start, count);
            }

            for (int length = _odd; length < _length; length *= 2)
            {
                Join(length);
            }

            for (int k = 0; k <= _length / 2; k++)
            {
                power[k] = _real[k] * _real[k] + _imaginary[k] * _imaginary[k];
            }
        }

        // The transform of every count-th number from start on, to its place.
        private void SumDirectly(double[] frame, int start, int count)
        {
            for (int k = 0; k < _odd; k++)
            {
                double real = 0;
                double imaginary = 0;
                for (int n = 0; n < _odd; n++)
                {
                    int turn = k * n % _odd * count;
                    double value = frame[start + n * count];
                    real += value * _cosines[turn];
                    imaginary -= value * _sines[turn];
                }

                _real[start * _odd + k] = real;
                _imaginary[start * _odd + k] = imaginary;
            }
        }

        // Transforms of length numbers become half as many of twice the length: that of start and start + count / 2, which
        // take turns in the frame.
        private void Join(int length)
        {
            int count = _length / length / 2;
            for (int start = 0; start < count; start++)
            {
                int even = start * length;
                int odd = (start + count) * length;
                int to = start * 2 * length;
                for (int k = 0; k < length; k++)
                {
                    double cosine = _cosines[k * count];
                    double sine = _sines[k * count];
                    double real = _real[odd + k] * cosine + _imaginary[odd + k] * sine;
                    double imaginary = _imaginary[odd + k] * cosine - _real[odd + k] * sine;
                    _nextReal[to + k] = _real[even + k] + real;
                    _nextImaginary[to + k] = _imaginary[even + k] + imaginary;
                    _nextReal[to + k + length] = _real[even + k] - real;
                    _nextImaginary[to + k + length] = _imaginary[even + k] - imaginary;
                }
            }

            double[] spare = _real;
            _real = _nextReal;
            _nextReal = spare;
            spare = _imaginary;
            _imaginary = _nextImaginary;
            _nextImaginary = spare;
        }
    }
}
