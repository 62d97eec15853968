"""MLX's packed weights, read in numpy: bit-equal to `mx.dequantize` on the CPU (tests compare them).

A packed row is one stream of bits, lowest first, in uint32 words; `group` neighbours share a scale.

| mode | bits | group | scale | value |
|---|---|---|---|---|
| affine | 1, 2, 3, 4, 5, 6, 8 | 32, 64, 128 | as the weights, with a bias | scale · q + bias |
| mxfp4 | 4 | 32 | e8m0, uint8 | e2m1 · 2^(scale − 127) |
| mxfp8 | 8 | 32 | e8m0, uint8 | e4m3 · 2^(scale − 127) |
| nvfp4 | 4 | 16 | e4m3, uint8 | e2m1 · scale |

(MLX documentation, `mlx.core.quantize`; OCP Microscaling Formats 1.0 for the mx types.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError

PARTS = ("scales", "biases")
ROWS_AT_ONCE = 4 << 20  # elements unpacked at a time, so that memory holds a piece of the bits and not all
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
AFFINE = ((1, 2, 3, 4, 5, 6, 8), (32, 64, 128))


@dataclass(frozen=True)
class Packing:
    """How a weight is packed.

    Attributes:
        group_size: neighbours in a row that share a scale.
        bits: of one element.
        mode: `affine`, `mxfp4`, `mxfp8` or `nvfp4`.
    """

    group_size: int
    bits: int
    mode: str

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the uint32 words' shape of a weight."""
        return (*shape[:-1], shape[-1] * self.bits // 32)

    def part_shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return `scales` (and `biases`) to shape of a weight."""
        names = PARTS if self.mode == "affine" else PARTS[:1]
        return dict.fromkeys(names, (*shape[:-1], shape[-1] // self.group_size))


def packing_of(config: Mapping[str, Any], module: str = "") -> Packing | None:
    """Return how a module of a quantised MLX directory is packed; None when the directory or the module is not.

    Args:
        config: `config.json`, whose `quantization` may hold settings by MLX module name.
        module: the MLX module name.

    Raises:
        StageError: a mode or sizes that MLX does not have.
    """
    settings = config.get("quantization") or (config.get("quantization_config") if is_mlx(config) else None)
    if not settings:
        return None
    own = settings.get(module, settings) if module else settings
    if own is False:
        return None
    own = settings | own if isinstance(own, dict) else settings
    mode = own.get("mode", "affine")
    if not isinstance(mode, str) or mode not in DEFAULTS:
        hint = f"known: {', '.join(DEFAULTS)}"
        raise StageError(f"config.json: quantization mode {mode!r} is not read", hint=hint)
    group, bits = own.get("group_size", DEFAULTS[mode][0]), own.get("bits", DEFAULTS[mode][1])
    fits = bits in AFFINE[0] and group in AFFINE[1] if mode == "affine" else (group, bits) == DEFAULTS[mode]
    if not fits or type(group) is not int or type(bits) is not int:
        raise StageError(
            f"config.json: {mode} with {bits} bits in groups of {group} is not read",
            hint="affine: 1 to 6 and 8 bits in groups of 32, 64 or 128; mxfp4 and mxfp8: 32; nvfp4: 16",
        )
    return Packing(group, bits, mode)


def is_mlx(config: Mapping[str, Any]) -> bool:
    """Tell whether `quantization_config` is MLX's own copy of `quantization` and no other library's."""
    found = config.get("quantization_config")
    return isinstance(found, dict) and "quant_method" not in found and {"group_size", "bits"} <= found.keys()


def dequantised(words: Array, scales: Array, biases: Array | None, packing: Packing) -> Array:
    """Return the weights as floats.

    Args:
        words: uint32 [out, in · bits / 32].
        scales: [out, in / group_size].
        biases: the same shape, for `affine` only.
        packing: how `words` is packed.

    Returns:
        [out, in] in the scales' type for `affine`, else float32, which holds every value of the other modes.
    """
    width = words.shape[-1] * 32 // packing.bits
    rows, by_row = words.reshape(-1, words.shape[-1]), scales.reshape(-1, scales.shape[-1])
    offsets = None if biases is None else biases.reshape(by_row.shape)
    kind = scales.dtype if packing.mode == "affine" else np.dtype(np.float32)
    out = np.empty((len(rows), width), kind)
    step = max(1, ROWS_AT_ONCE // width)
    for start in range(0, len(rows), step):
        here = slice(start, start + step)
        codes = _unpacked(rows[here], packing.bits).reshape(-1, by_row.shape[1], packing.group_size)
        offset = None if offsets is None else offsets[here, :, None]
        out[here] = _values(codes, by_row[here, :, None], offset, packing).reshape(-1, width)
    return out.reshape(*words.shape[:-1], width)


def _unpacked(words: Array, bits: int) -> Array:
    """Return the codes [rows, in] as uint8."""
    octets = np.ascontiguousarray(words, "<u4").view(np.uint8)
    if bits == 8:
        return octets
    stream = np.unpackbits(octets, axis=1, bitorder="little").reshape(len(words), -1, bits)
    return np.packbits(stream, axis=2, bitorder="little")[:, :, 0]


def _values(codes: Array, scales: Array, offsets: Array | None, packing: Packing) -> Array:
    if packing.mode == "affine":  # MLX rounds to the scales' type after the product and after the sum
        if offsets is None:
            raise StageError("affine weights without biases are not read", hint="quantise the model again with mlx-lm")
        return codes.astype(scales.dtype) * scales + offsets
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) if packing.mode == "mxfp8" else E2M1[codes]
    if packing.mode == "nvfp4":
        return values * scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # as in MLX: what does not fit is infinite
        return values * np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
