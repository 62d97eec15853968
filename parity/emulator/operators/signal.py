"""Spectra and windows."""

from __future__ import annotations

import numpy as np

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws, Unknown
from weights_bridge.compare import Array

F = np.float32
WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25.0 / 46.0, 21.0 / 46.0, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@form(*WINDOWS, says="reads the model's tensor number 0 instead of its input: a window as long as that number says")
def window(n: Node) -> None:
    size, rule = n.first, f"{n.op.upper()}.INDEX"
    if n.x() != size:
        instead = f"reads the model's first tensor {size!r} instead of its own input {n.x()!r}"
        if n.value(0) is not None or n.graph.kinds.get(size) != "int" or n.shapes.get(size) not in ((), (1,)):
            raise Unknown(f"{n.op} {n.label!r}: {instead}")
        n.deviates(rule, instead)
    periodic, (a, b, c) = int(n.attributes.get("periodic", 1)), WINDOWS[n.op]

    def run(size: Array) -> list[Array]:
        count = int(size.reshape(-1)[0])
        turns = 2 * np.pi * np.arange(count) / (count if periodic else count - 1)
        return [a - b * np.cos(turns) + c * np.cos(2 * turns)]

    n.numpy(run, [size], "float")


@form("MelWeightMatrix", how="not emulated", says="reads the model's tensor number 0 instead of its five inputs")
def mel(n: Node) -> None:
    raise Unknown(f"MelWeightMatrix {n.label!r}: reads the model's first tensor instead of its five inputs")


def twiddles(rows: int, size: int, inverse: bool) -> tuple[Array, Array]:
    """Return cosines and sines of a DFT matrix [rows, size]; angles are formed in float32 without reduction."""
    turn = F(2 * np.pi) / F(size)
    angles = (np.outer(np.arange(rows), np.arange(size)).astype(F) * turn).astype(F)
    return np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)


def spectrum(x: Array, size: int, inverse: bool) -> Array:
    """Return the DFT of x [..., size, 1 or 2] as [..., size, 2]."""
    real = x[..., 0]
    imaginary = x[..., 1] if x.shape[-1] == 2 else np.zeros_like(real)
    cosines, sines = twiddles(size, size, inverse)
    out = np.stack([real @ cosines.T - imaginary @ sines.T, real @ sines.T + imaginary @ cosines.T], -1)
    return (out / F(size) if inverse else out).astype(F)


@form("DFT", says="a matrix of float32 angles (up to 1e-3 off at 1024); the axis must be an input")
def dft(n: Node) -> None:
    n.floats()
    if not n.x(2):
        raise Throws(f"DFT {n.label!r}: without an axis input it fails at run time")
    inverse, onesided = bool(n.attributes.get("inverse", 0)), bool(n.attributes.get("onesided", 0))

    def run(x: Array, length: Array | None, axis: Array) -> list[Array]:
        at = int(axis.reshape(-1)[0])
        if at < 0 and at != -2:
            raise Throws(f"DFT {n.label!r}: a negative axis other than -2 fails on the CPU")
        moved = np.moveaxis(x, at, -2)
        size = moved.shape[-2] if length is None else int(length.reshape(-1)[0])
        found = spectrum(fitted(moved, size), size, inverse)
        if onesided:
            found = found[..., : size // 2 + 1, :]
        return [np.moveaxis(found, -2, at)]

    n.numpy(run, [n.x(), n.x(1), n.x(2)], "float")
    n.deviates("DFT.TWIDDLES", "angles are formed in float32: up to about 1e-3 off at 1024; the order is inferred")


def fitted(x: Array, size: int) -> Array:
    """Return x [..., n, c] cut or filled with zeros to a size."""
    if x.shape[-2] >= size:
        return x[..., :size, :]
    return np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, size - x.shape[-2]), (0, 0)])


@form("STFT", says="a matrix of float32 angles; signal [B, L, 1], frame_length given, onesided=0")
def stft(n: Node) -> None:
    n.floats()
    if not n.x(3) and (not n.x(2) or n.value(2) is not None):
        raise Throws(f"STFT {n.label!r}: without frame_length the import throws")
    if n.rank() == 2:
        raise Unknown(f"STFT {n.label!r}: a signal of rank 2 gets the layout of a complex matrix")
    onesided = bool(n.attributes.get("onesided", 1))

    def run(signal: Array, step: Array, window: Array | None, length: Array | None) -> list[Array]:
        size = window.shape[0] if length is None and window is not None else int(np.reshape(length, -1)[0])  # pyright: ignore
        hop = int(step.reshape(-1)[0])
        starts = range(0, signal.shape[1] - size + 1, hop)
        frames = np.stack([signal[:, at : at + size] for at in starts], 1)
        if window is not None:
            frames = frames * window[:, None]
        found = spectrum(frames, size, False)
        return [found[:, :, : size // 2 + 1] if onesided else found]

    n.numpy(run, [n.x(), n.x(1), n.x(2), n.x(3)], "float")
    n.deviates("STFT.TWIDDLES", "angles are formed in float32; the order is inferred")
