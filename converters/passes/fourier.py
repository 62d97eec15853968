"""DFT and STFT as products with their matrices.

Why: Sentis wants the axis of a DFT as an input, which ONNX has from opset 20 on only; of an STFT it fails on one-sided
output (ONNX' default), on a missing frame_length, and reads a signal of rank 2 as a complex matrix. A DFT becomes
one MatMul with the cosines and sines of its length, an STFT one Conv whose kernels are the windowed waves. Formulas:
ONNX operator definitions. Does not fire where lengths, the step or the window are no constants, on complex signals of
an STFT, on one-sided inverse transforms, and above 64 MiB of matrix.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

MOST_BYTES = 1 << 26  # of one matrix
AXIS_INPUT = 20  # the opset where the axis became an input
GROWS = "a DFT matrix has twice the length squared"


def write(place: Place, emit: Emit) -> None:
    """Write the transform."""
    (dft if place.node.op_type == "DFT" else stft)(place, emit)


def dft(place: Place, emit: Emit, opset: int = 0) -> bool:
    """Write a DFT; `opset` is the one it comes from where that is not the one that is written."""
    shape, given = place.shape(0), place.attributes
    if shape is None or len(shape) < 2:
        raise Refusal("the rank of its input is not known")
    rank, parts = len(shape), shape[-1]
    axis = _axis(place, opset or place.opset)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank - 1 or parts not in (1, 2):
        raise Refusal("its axis, or whether the input is complex, is not known")
    length, wanted = shape[axis], place.value(1)
    if length is None or (place.name(1) and wanted is None):
        raise Refusal("the length of its axis is not known")
    count = int(wanted.reshape(())) if wanted is not None else length
    inverse, onesided = bool(given.get("inverse", 0)), bool(given.get("onesided", 0))
    if inverse and onesided:
        raise Refusal("a one-sided inverse")
    matrix = dft_matrix(length, count, parts, inverse=inverse, onesided=onesided)
    order = [*(one for one in range(rank - 1) if one != axis), axis, rank - 1]
    x = place.name(0)
    x = emit("Transpose", x, perm=order) if order != list(range(rank)) else x
    flat = emit.reshaped(x, [*[0] * (rank - 2), length * parts])
    product = emit("MatMul", flat, emit.array(matrix.astype(emit.dtype(place.name(0)))))
    back = [order.index(one) for one in range(rank)]
    in_place = order == list(range(rank))
    target = [*[0] * (rank - 2), matrix.shape[1] // 2, 2]
    made = emit.reshaped(product, target, to=place.node.output[0] if in_place else "")
    if not in_place:
        emit("Transpose", made, to=place.node.output[0], perm=back)
    return True


def _axis(place: Place, opset: int) -> int:
    if opset < AXIS_INPUT:
        return int(place.attributes.get("axis", 1))
    if not place.name(2):
        return -2
    value = place.value(2)
    if value is None or value.size != 1:
        raise Refusal("its axis is no constant")
    return int(value.reshape(()))


def dft_matrix(length: int, count: int, parts: int, *, inverse: bool, onesided: bool) -> np.ndarray:
    """Return the matrix of a DFT, [length · parts, bins · 2]: real and imaginary parts are neighbours.

    Args:
        length: of the input's axis; what lies behind `count` is left out, what is missing counts as zero.
        count: of the transform.
        parts: 1 for real input, 2 for complex.
        inverse: whether the signs turn and the sum is divided by `count`.
        onesided: whether only the first count // 2 + 1 bins are wanted.

    Raises:
        Refusal: it is empty, or larger than 64 MiB.
    """
    bins = count // 2 + 1 if onesided else count
    if count < 1 or length < 1 or 8 * length * parts * bins > MOST_BYTES:
        raise Refusal(f"a matrix of {length} · {parts} to {bins} · 2 numbers")
    steps = np.outer(np.arange(length), np.arange(bins)) % count  # exact angles
    waves = np.exp((2j if inverse else -2j) * np.pi * steps / count) / (count if inverse else 1)
    waves[count:] = 0
    real = np.stack([waves.real, waves.imag], -1)  # of a real part
    rows = real if parts == 1 else np.stack([real, np.stack([-waves.imag, waves.real], -1)], 1)
    return rows.reshape(length * parts, bins * 2)


def stft(place: Place, emit: Emit) -> bool:
    """Write an STFT as one Conv, [B, 1, L] to [B, 2 · bins, frames]."""
    shape, step, window = place.shape(0), place.value(1), place.value(2)
    if shape is None or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 1):
        raise Refusal("its signal is complex, or its rank is not known")
    if step is None or (place.name(2) and window is None) or (place.name(3) and place.value(3) is None):
        raise Refusal("its step, frame length or window is no constant")
    given = place.value(3)
    if given is None and window is None:
        raise Refusal("it has neither a frame length nor a window")
    length = int(given.reshape(())) if given is not None else len(window) if window is not None else 0
    onesided = bool(place.attributes.get("onesided", 1))
    matrix = dft_matrix(length, length, 1, inverse=False, onesided=onesided)
    if window is not None:
        if window.shape != (length,):
            raise Refusal(f"its window has the shape {list(window.shape)}, its frames {length} samples")
        matrix = matrix * window[:, None].astype(np.float64)
    kernel = matrix.T[:, None].astype(emit.dtype(place.name(0)))
    signal = emit.reshaped(place.name(0), [0, 1, -1])
    waves = emit("Conv", signal, emit.array(np.ascontiguousarray(kernel)), strides=[int(step.reshape(()))])
    rows = emit("Transpose", waves, perm=[0, 2, 1])
    emit.reshaped(rows, [0, 0, matrix.shape[1] // 2, 2], to=place.node.output[0])
    return True


PASS = node_pass(
    "fourier", "Sentis wants DFT and STFT in forms that exporters do not write", write,
    mends=["DFT.NO_AXIS_INPUT", "STFT.NO_FRAME_LENGTH", "STFT.ONESIDED", "STFT.RANK2"], grows=GROWS,
)  # fmt: skip
