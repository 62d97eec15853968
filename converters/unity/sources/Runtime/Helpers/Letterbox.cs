using System;

namespace MlxSentis
{
    /// <summary>
    /// Fits an image into a square with its proportions kept, as detectors are trained: scaled by bilinear interpolation
    /// about pixel centres (no antialiasing), the rest filled. And the way back, for boxes.
    /// </summary>
    public sealed class Letterbox
    {
        /// <summary>The grey that Ultralytics' models are trained with, of 255.</summary>
        public const float Grey = 114f;

        private readonly int _size;

        /// <param name="size">Width and height of the square.</param>
        public Letterbox(int size)
        {
            _size = size;
        }

        /// <summary>By what the last image was scaled.</summary>
        public float Scale { get; private set; } = 1f;

        /// <summary>Columns of filling on its left.</summary>
        public int Left { get; private set; }

        /// <summary>Rows of filling above it.</summary>
        public int Top { get; private set; }

        /// <summary>Writes an image into a tensor's data [3, size, size]: red, green, blue, each from 0 to 1.</summary>
        /// <param name="pixels">Red, green and blue of each pixel, row by row.</param>
        /// <param name="width">Of the image.</param>
        /// <param name="height">Of the image.</param>
        /// <param name="isBottomUp">
        /// Whether the first row is the lowest, as in what Texture2D gives; models want the highest first.
        /// </param>
        /// <param name="square">3 · size · size numbers, all of them written.</param>
        public void Fill(byte[] pixels, int width, int height, bool isBottomUp, float[] square)
        {
            if (pixels.Length < 3 * width * height || square.Length < 3 * _size * _size)
            {
                throw new ArgumentException("fewer numbers than pixels");
            }

            double scale = Math.Min((double)_size / height, (double)_size / width);
            int wide = (int)Math.Round(width * scale);
            int high = (int)Math.Round(height * scale);
            Scale = (float)scale;
            Left = (int)Math.Round((_size - wide) / 2.0 - 0.1);
            Top = (int)Math.Round((_size - high) / 2.0 - 0.1);
            for (int i = 0; i < 3 * _size * _size; i++)
            {
                square[i] = Grey / 255f;
            }

            for (int row = 0; row < high; row++)
            {
                double down = Place(row, high, height);
                for (int column = 0; column < wide; column++)
                {
                    double across = Place(column, wide, width);
                    int to = (Top + row) * _size + Left + column;
                    for (int colour = 0; colour < 3; colour++)
                    {
                        double value = Between(pixels, width, height, isBottomUp, across, down, colour);
                        square[colour * _size * _size + to] = (float)(value / 255);
                    }
                }
            }
        }

        /// <summary>Returns where a column of the square lies in the image.</summary>
        public float ImageX(float squareX)
        {
            return (squareX - Left) / Scale;
        }

        /// <summary>Returns where a row of the square lies in the image, counted from its highest row.</summary>
        public float ImageY(float squareY)
        {
            return (squareY - Top) / Scale;
        }

        private static double Place(int at, int scaled, int size)
        {
            double place = (at + 0.5) * size / scaled - 0.5;
            return Math.Max(0, Math.Min(size - 1, place));
        }

        private static double Between(
            byte[] pixels, int width, int height, bool isBottomUp, double across, double down, int colour)
        {
            int left = (int)across;
            int top = (int)down;
            int right = Math.Min(left + 1, width - 1);
            int low = Math.Min(top + 1, height - 1);
            double toRight = across - left;
            double toLow = down - top;
            int upper = 3 * width * (isBottomUp ? height - 1 - top : top) + colour;
            int lower = 3 * width * (isBottomUp ? height - 1 - low : low) + colour;
            double above = pixels[upper + 3 * left] * (1 - toRight) + pixels[upper + 3 * right] * toRight;
            double below = pixels[lower + 3 * left] * (1 - toRight) + pixels[lower + 3 * right] * toRight;
            return above * (1 - toLow) + below * toLow;
        }
    }
}
