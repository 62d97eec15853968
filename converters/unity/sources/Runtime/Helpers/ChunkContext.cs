using System;

namespace MlxSentis
{
    /// <summary>
    /// Puts the end of the chunk before in front of each chunk, as streaming models are run: Silero's voice detector sees
    /// 64 samples of context and 512 new ones. Without the context a single frame still agrees, and speech reads as silence.
    /// </summary>
    public sealed class ChunkContext
    {
        private readonly float[] _context;

        /// <param name="context">Samples of context, 64 for Silero at 16 kHz.</param>
        public ChunkContext(int context = 64)
        {
            _context = new float[context];
        }

        /// <summary>Begins a new stream: silence before it. The model's state must be zeroed as well.</summary>
        public void Clear()
        {
            Array.Clear(_context, 0, _context.Length);
        }

        /// <summary>Writes context and chunk into the model's input, and keeps the chunk's end for the next.</summary>
        /// <param name="chunk">New samples, at least as many as the context.</param>
        /// <param name="input">Room for context and chunk.</param>
        public void Fill(float[] chunk, float[] input)
        {
            if (chunk.Length < _context.Length || input.Length != _context.Length + chunk.Length)
            {
                throw new ArgumentException("wanted a chunk no shorter than the context, and room for both");
            }

            Array.Copy(_context, input, _context.Length);
            Array.Copy(chunk, 0, input, _context.Length, chunk.Length);
            Array.Copy(chunk, chunk.Length - _context.Length, _context, 0, _context.Length);
        }
    }
}
