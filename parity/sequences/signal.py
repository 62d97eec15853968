"""The signal of a sequence: read from a WAV file, brought to the model's rate, cut into steps."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array
from weights_bridge.errors import StageError


def read_wav(path: Path, rate: int | None) -> Array:
    """Return a mono WAV file's samples [N] float32 in −1 … 1, at a wanted rate.

    Args:
        path: 16-bit PCM, one channel.
        rate: samples a second; None keeps the file's.

    Raises:
        StageError: missing, empty, or in another form.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, own_rate, frames = file.getparams()[:4]
            data = file.readframes(frames)
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="signal.file lies beside the sequence file") from None
    except (wave.Error, EOFError, OSError, RuntimeError) as error:
        raise StageError(f"{path}: not a whole WAV file: {error}", hint="give 16-bit PCM, one channel") from None
    if (channels, width) != (1, 2):
        found = f"{channels} channels of {8 * width} bits"
        raise StageError(f"{path}: found {found}, wanted 1 channel of 16 bits", hint="convert the file first")
    samples = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / 32768
    if samples.size == 0:
        raise StageError(f"{path}: no samples in it", hint="give a clip of several steps")
    return resampled(samples, own_rate, rate or own_rate)


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Return samples [N] at another rate, band-limited: the spectrum is cut, or filled up with zeros.

    The signal is taken as periodic, which both sides of a comparison hear alike.
    """
    if rate == wanted:
        return samples
    count = round(samples.size * wanted / rate)
    spectrum = np.fft.rfft(samples.astype(np.float64))
    kept = spectrum[: count // 2 + 1]
    return (np.fft.irfft(kept, count) * (count / samples.size)).astype(np.float32)


def with_rank(signal: Array, rank: int, spec: SequenceSpec) -> Array:
    """Return a signal with leading sizes of 1, so that it has at least the rank of the graph's input.

    Raises:
        StageError: `signal.axis` is none of its axes.
    """
    rank = max(rank, signal.ndim)
    if not -rank <= spec.axis < rank:
        hint = "signal.axis is an axis of the graph's input; -1 is the last"
        raise StageError(f"{spec.path}: signal.axis: found {spec.axis}, wanted {-rank} to {rank - 1}", hint=hint)
    return signal.reshape((1,) * (rank - signal.ndim) + signal.shape)


def frames(signal: Array, spec: SequenceSpec) -> list[Array]:
    """Return the new values of every step, each with `chunk` along `spec.axis`.

    Args:
        signal: rank of the graph's input, any length along the axis.
        spec: chunk, axis and what happens to the tail.
    """
    length = signal.shape[spec.axis]
    rest = length % spec.chunk
    if rest and spec.tail == "pad":
        widths = [(0, 0)] * signal.ndim
        widths[spec.axis] = (0, spec.chunk - rest)
        signal = np.pad(signal, widths)
        length += spec.chunk - rest
    return list(_pieces(signal, length // spec.chunk, spec))


def _pieces(signal: Array, count: int, spec: SequenceSpec) -> Iterator[Array]:
    for step in range(count):
        yield np.take(signal, range(step * spec.chunk, (step + 1) * spec.chunk), spec.axis)
