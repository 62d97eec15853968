using System;
using System.Collections.Generic;

namespace MlxSentis
{
    /// <summary>How four numbers give a box.</summary>
    public enum BoxFormat
    {
        /// <summary>Left, top, right, bottom, in any units and either order of the corners.</summary>
        Corners,

        /// <summary>Middle across, middle down, width, height.</summary>
        Centre,
    }

    /// <summary>
    /// Keeps the best of boxes that overlap, as ONNX' NonMaxSuppression does: greedily by score, a lower index first among
    /// equals. Made once and used for every frame; it makes no garbage.
    /// </summary>
    public sealed class NonMaxSuppression : IComparer<int>
    {
        private readonly int[] _order;
        private readonly float[] _corners;
        private readonly bool[] _isGone;
        private float[] _scores;

        /// <param name="capacity">The most boxes of a frame.</param>
        public NonMaxSuppression(int capacity)
        {
            _order = new int[capacity];
            _corners = new float[4 * capacity];
            _isGone = new bool[capacity];
        }

        /// <summary>Fills a list with the indices of the boxes that remain, the best first.</summary>
        /// <param name="boxes">Four numbers a box.</param>
        /// <param name="format">What they say.</param>
        /// <param name="scores">A score a box.</param>
        /// <param name="classes">A class a box: only boxes of one class push each other out; null where there is one.</param>
        /// <param name="count">How many boxes there are.</param>
        /// <param name="minScore">Boxes must score more than this.</param>
        /// <param name="maxOverlap">A box goes when it shares more than this with a better one (intersection over union).</param>
        /// <param name="kept">The indices; what was in it is removed.</param>
        public void Select(
            float[] boxes,
            BoxFormat format,
            float[] scores,
            int[] classes,
            int count,
            float minScore,
            float maxOverlap,
            List<int> kept)
        {
            kept.Clear();
            if (count > _order.Length)
            {
                throw new ArgumentOutOfRangeException(nameof(count), "more boxes than the capacity");
            }

            int candidates = 0;
            for (int i = 0; i < count; i++)
            {
                if (scores[i] > minScore)
                {
                    ToCorners(boxes, format, i);
                    _order[candidates] = i;
                    candidates++;
                }
            }

            _scores = scores;
            Array.Sort(_order, 0, candidates, this);
            Array.Clear(_isGone, 0, candidates);
            for (int i = 0; i < candidates; i++)
            {
                if (!_isGone[i])
                {
                    kept.Add(_order[i]);
                    PushOut(i, candidates, classes, maxOverlap);
                }
            }
        }

        int IComparer<int>.Compare(int left, int right)
        {
            int byScore = _scores[right].CompareTo(_scores[left]);
            return byScore != 0 ? byScore : left.CompareTo(right);
        }

        private void PushOut(int best, int candidates, int[] classes, float maxOverlap)
        {
            int one = _order[best];
            for (int i = best + 1; i < candidates; i++)
            {
                int other = _order[i];
                if (!_isGone[i] && (classes == null || classes[one] == classes[other]))
                {
                    _isGone[i] = Overlap(one, other) > maxOverlap;
                }
            }
        }

        private void ToCorners(float[] boxes, BoxFormat format, int box)
        {
            int at = 4 * box;
            float a = boxes[at];
            float b = boxes[at + 1];
            float c = boxes[at + 2];
            float d = boxes[at + 3];
            bool isCentre = format == BoxFormat.Centre;
            _corners[at] = isCentre ? a - c / 2 : Math.Min(a, c);
            _corners[at + 1] = isCentre ? b - d / 2 : Math.Min(b, d);
            _corners[at + 2] = isCentre ? a + c / 2 : Math.Max(a, c);
            _corners[at + 3] = isCentre ? b + d / 2 : Math.Max(b, d);
        }

        private float Overlap(int one, int other)
        {
            int a = 4 * one;
            int b = 4 * other;
            float width = Math.Min(_corners[a + 2], _corners[b + 2]) - Math.Max(_corners[a], _corners[b]);
            float height = Math.Min(_corners[a + 3], _corners[b + 3]) - Math.Max(_corners[a + 1], _corners[b + 1]);
            if (width <= 0 || height <= 0)
            {
                return 0;
            }

            float shared = width * height;
            return shared / (Area(a) + Area(b) - shared);
        }

        private float Area(int at)
        {
            return (_corners[at + 2] - _corners[at]) * (_corners[at + 3] - _corners[at + 1]);
        }
    }
}
