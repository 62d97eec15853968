"""Packing weights as MLX's affine mode does, in numpy: bit-equal to `mx.quantize` on the CPU (tests compare them).

`group` neighbours of a row share a scale and a bias. One end of a group, the one of the larger magnitude, lies on the
grid exactly, and so does 0 (MLX documentation, `mlx.core.quantize`).

Legend: `g` group, `b` bits.
"""

from __future__ import annotations

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.quantisation import ROWS_AT_ONCE, Packing

LEAST_SCALE = np.float32(1e-7)


def packed(weight: Array, packing: Packing) -> tuple[Array, Array, Array]:
    """Return (words, scales, biases) of a weight.

    Args:
        weight: float32 [out, in], `in` a multiple of the group.
        packing: of the affine mode.

    Returns:
        uint32 [out, in · b / 32], float32 [out, in / g] twice.
    """
    out, width = weight.shape
    shape = packing.part_shapes(weight.shape)["scales"]
    words = np.empty(packing.packed_shape(weight.shape), np.uint32)
    scales, biases = np.empty(shape, np.float32), np.empty(shape, np.float32)
    height = max(1, ROWS_AT_ONCE // width)
    for start in range(0, out, height):
        here = slice(start, start + height)
        words[here], scales[here], biases[here] = _packed_rows(weight[here], packing)
    return words, scales, biases


def _packed_rows(weight: Array, packing: Packing) -> tuple[Array, Array, Array]:
    groups = weight.reshape(len(weight), -1, packing.group_size)
    most = np.float32(2**packing.bits - 1)
    low, high = groups.min(axis=2), groups.max(axis=2)
    low_is_edge = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / most, LEAST_SCALE)
    scale = np.where(low_is_edge, scale, -scale)
    edge = np.where(low_is_edge, low, high)
    steps = np.rint(edge / scale)
    fits = steps != 0
    scale = np.where(fits, edge / np.where(fits, steps, np.float32(1)), scale)
    bias = np.where(fits, edge, np.float32(0))
    codes = np.rint((groups - bias[:, :, None]) / scale[:, :, None])
    codes = np.clip(codes, 0, most).astype(np.uint8).reshape(len(weight), -1)
    return _words(codes, packing.bits), scale, bias


def _words(codes: Array, bits: int) -> Array:
    """Return codes as one stream of bits a row, lowest first."""
    stream = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    return np.packbits(stream.reshape(len(codes), -1), axis=1, bitorder="little").view("<u4")
