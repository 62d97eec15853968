using System;
using Unity.Collections;

// What docs say of Sentis 2.4 to 2.6: signatures, who owns a tensor, and when its memory may be read. Where Sentis would
// read garbage or assert in the editor alone, this throws.
namespace Unity.InferenceEngine
{
    public enum BackendType { GPUCompute, GPUPixel, CPU }

    public enum DataType { Float, Int, Short, Byte, Custom }

    public struct TensorShape
    {
        private readonly int _rank;
        private readonly int _d0;
        private readonly int _d1;
        private readonly int _d2;
        private readonly int _d3;
        private readonly int[] _more; // of shapes with other ranks, which no loop makes

        public TensorShape(int d0) : this(1, d0, 1, 1, 1, null) { }

        public TensorShape(int d0, int d1) : this(2, d0, d1, 1, 1, null) { }

        public TensorShape(int d0, int d1, int d2) : this(3, d0, d1, d2, 1, null) { }

        public TensorShape(int d0, int d1, int d2, int d3) : this(4, d0, d1, d2, d3, null) { }

        // Stands for ReadOnlySpan<int>, which an array turns into by itself.
        public TensorShape(int[] shape) : this(shape.Length, 1, 1, 1, 1, shape) { }

        private TensorShape(int rank, int d0, int d1, int d2, int d3, int[] more)
        {
            _rank = rank;
            _d0 = d0;
            _d1 = d1;
            _d2 = d2;
            _d3 = d3;
            _more = more;
        }

        public int rank { get { return _rank; } }

        public int length
        {
            get
            {
                int count = _d0 * _d1 * _d2 * _d3;
                for (int i = 0; _more != null && i < _more.Length; i++)
                {
                    count *= _more[i];
                }

                return count;
            }
        }

        public int this[int axis]
        {
            get { return _more != null ? _more[axis] : axis == 0 ? _d0 : axis == 1 ? _d1 : axis == 2 ? _d2 : _d3; }
        }

        public int[] ToArray()
        {
            int[] sizes = new int[_rank];
            for (int i = 0; i < sizes.Length; i++)
            {
                sizes[i] = this[i];
            }

            return sizes;
        }
    }

    /// <summary>What the tests ask: how many tensors were made, and how many are there.</summary>
    public static class Ledger
    {
        public static int Made;
        public static int Alive;
        public static int Waits;

        private static readonly Func<long> AllBytes = (Func<long>)Delegate.CreateDelegate(
            typeof(Func<long>), typeof(GC).GetMethod("GetAllocatedBytesForCurrentThread"));

        private static long _own;

        /// <summary>Bytes of garbage that this thread made, without those of the stubs.</summary>
        public static long Bytes
        {
            get { return AllBytes() - _own; }
        }

        // Everything that a stub allocates between both calls is not the caller's.
        internal static long Enter()
        {
            return AllBytes();
        }

        internal static void Leave(long before)
        {
            _own += AllBytes() - before;
        }
    }

    public abstract class Tensor : IDisposable
    {
        internal bool IsDisposed;
        internal bool IsPending;
        internal bool IsRecycled;
        internal Tensor ReadBy;
        internal BackendType Place = BackendType.CPU;
        private const int FramesOfARequest = 3;
        private int _framesToGo = -1;

        public DataType dataType { get; protected set; }

        public TensorShape shape { get; internal set; }

        public BackendType backendType { get { return Place; } }

        public abstract void Reshape(TensorShape shape);

        // Who asks for pending data waits; what was requested is there a while later.
        public void CompleteAllPendingOperations()
        {
            Ledger.Waits += IsPending ? 1 : 0;
            IsPending = false;
        }

        public void ReadbackRequest()
        {
            RequireUse();
            _framesToGo = IsPending ? FramesOfARequest : 0;
        }

        public bool IsReadbackRequestDone()
        {
            RequireUse();
            if (_framesToGo < 0)
            {
                throw new InvalidOperationException("no readback of this tensor was requested");
            }

            _framesToGo -= _framesToGo > 0 ? 1 : 0;
            IsPending &= _framesToGo > 0;
            return _framesToGo == 0;
        }

        // Waits for the run that reads it.
        public void Dispose()
        {
            if (!IsDisposed)
            {
                Ledger.Alive--;
                if (ReadBy != null && !ReadBy.IsRecycled)
                {
                    ReadBy.CompleteAllPendingOperations();
                }
            }

            IsDisposed = true;
        }

        internal abstract void Settle();

        internal abstract byte[] Bytes();

        internal abstract void CopyFrom(Tensor other);

        internal abstract void Spoil();

        internal abstract void MoveTo(BackendType backend);

        internal abstract Tensor CloneEmpty();

        internal void RequireUse()
        {
            if (IsDisposed)
            {
                throw new ObjectDisposedException("a tensor that was disposed of");
            }

            if (IsRecycled)
            {
                throw new InvalidOperationException("an output of an earlier Schedule: the worker took its memory back");
            }
        }
    }

    public class Tensor<T> : Tensor where T : struct
    {
        private T[] _data;
        private T[] _upload;

        public Tensor(TensorShape shape, T[] srcData, int dataStartIndex = 0) : this(shape)
        {
            Array.Copy(srcData, dataStartIndex, _data, 0, srcData.Length - dataStartIndex);
        }

        public Tensor(TensorShape shape, bool clearOnInit = true)
        {
            this.shape = shape;
            dataType = typeof(T) == typeof(float) ? DataType.Float : DataType.Int;
            _data = new T[shape.length];
            Ledger.Made++;
            Ledger.Alive++;
        }

        public T this[int d0]
        {
            get
            {
                RequireRead();
                return _data[d0];
            }
        }

        public override void Reshape(TensorShape shape)
        {
            RequireUse();
            if (shape.length > _data.Length)
            {
                throw new InvalidOperationException("reshaped to " + shape.length + ", there is room for " + _data.Length);
            }

            this.shape = shape;
        }

        // The copy happens later, in a job: what is written to the array before that is what arrives.
        public void Upload(T[] srcData)
        {
            RequireUse();
            if (srcData.Length > _data.Length)
            {
                throw new InvalidOperationException("more is uploaded than there is room for");
            }

            Settle();
            _upload = srcData;
        }

        public T[] DownloadToArray()
        {
            RequireUse();
            CompleteAllPendingOperations();
            Settle();
            long before = Ledger.Enter();
            T[] read = new T[shape.length];
            Ledger.Leave(before);
            Array.Copy(_data, read, read.Length);
            return read;
        }

        public NativeArray<T> DownloadToNativeArray()
        {
            return new NativeArray<T>(DownloadToArray());
        }

        public NativeArray<T>.ReadOnly AsReadOnlyNativeArray()
        {
            RequireRead();
            return new NativeArray<T>.ReadOnly(_data);
        }

        internal override void Settle()
        {
            if (_upload != null)
            {
                Array.Copy(_upload, _data, _upload.Length);
                _upload = null;
            }
        }

        internal override byte[] Bytes()
        {
            byte[] bytes = new byte[shape.length * 4];
            Buffer.BlockCopy(_data, 0, bytes, 0, bytes.Length);
            return bytes;
        }

        internal void Fill(byte[] bytes)
        {
            Buffer.BlockCopy(bytes, 0, _data, 0, bytes.Length);
        }

        internal override void CopyFrom(Tensor other)
        {
            Tensor<T> source = (Tensor<T>)other;
            Array.Copy(source._data, _data, source.shape.length);
        }

        internal override void Spoil()
        {
            IsRecycled = true;
            Array.Clear(_data, 0, _data.Length);
        }

        // What is moved keeps room for what it holds at that time, and no more.
        internal override void MoveTo(BackendType backend)
        {
            if (backend == Place)
            {
                return;
            }

            Settle();
            Array.Resize(ref _data, shape.length);
            Place = backend;
        }

        internal override Tensor CloneEmpty()
        {
            return new Tensor<T>(shape);
        }

        private void RequireRead()
        {
            RequireUse();
            if (Place != BackendType.CPU)
            {
                throw new InvalidOperationException("Tensor data cannot be read from: it is on the graphics device");
            }

            if (IsPending)
            {
                throw new InvalidOperationException("Tensor data is still pending");
            }

            Settle();
        }
    }

    public sealed class ComputeTensorData
    {
        public static ComputeTensorData Pin(Tensor X, bool clearOnInit = false)
        {
            X.MoveTo(BackendType.GPUCompute);
            return new ComputeTensorData();
        }
    }
}
