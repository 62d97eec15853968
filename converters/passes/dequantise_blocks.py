"""MatMulNBits and GatherBlockQuantized of ONNX Runtime as a product with, or a Gather from, float weights.

Why: Sentis imports no weights in blocks of 4 or 8 bits; it quantises weights itself, after import. Layout, from ONNX
Runtime's operator definition: B [N, blocks, block · bits / 8] with the low bits first, a scale for each block, a zero
point packed the same way or 2^(bits − 1); of a table every row alike. Does not fire on reordered groups, on weights
that are no constants, on others than 4 and 8 bits, and on tables whose blocks go down the columns.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.quantised_forms import dequantised_array
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the float operator with the weights that the blocks stand for."""
    (_table if place.node.op_type == "GatherBlockQuantized" else _product)(place, emit)


def _table(place: Place, emit: Emit) -> None:
    """Write a Gather from a table that is whole."""
    given, packed, scales = place.attributes, place.value(0), place.value(2)
    zero = place.value(3) if place.name(3) else None
    bits, block = int(given.get("bits", 4)), int(given.get("block_size", 128))
    axis = int(given.get("quantize_axis", 1))
    if packed is None or scales is None or (place.name(3) and zero is None) or packed.ndim != 2:
        raise Refusal("its table is no constant of rank 2")
    if bits not in (4, 8) or axis not in (1, -1) or int(given.get("gather_axis", 0)) != 0:
        raise Refusal("not rows of 4 or 8 bits in blocks along the row")
    if packed.dtype == np.uint8:
        shift = np.full(scales.shape, 2 ** (bits - 1), np.uint8)
        zero = shift if zero is None else unpacked(zero, bits)[:, : scales.shape[1]]
        packed = unpacked(packed, bits)
    wide = dequantised_array(packed, scales, zero, 1, block)
    emit("Gather", emit.array(wide), place.name(1), to=place.node.output[0], axis=0)


def _product(place: Place, emit: Emit) -> None:
    """Write MatMul, and Add where there is a bias."""
    weights = _weights(place).astype(emit.dtype(place.name(0)))
    bias, to = place.name(5), place.node.output[0]
    product = emit("MatMul", place.name(0), emit.array(weights), to="" if bias else to)
    if bias:
        emit("Add", product, bias, to=to)


def _weights(place: Place) -> np.ndarray:
    """Return the weights as float32, [K, N]."""
    given, packed, scales = place.attributes, place.value(1), place.value(2)
    rows, columns, bits, block = (int(given.get(name, 0)) for name in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    if packed is None or scales is None or place.name(4) or bits not in (4, 8) or not rows * columns * block:
        raise Refusal("its weights are no constants in blocks of 4 or 8 bits, or its groups are reordered")
    blocks = -(-rows // block)
    whole = unpacked(packed.reshape(columns, -1), bits)[:, : blocks * block].reshape(columns, blocks, block)
    zero = place.value(3) if place.name(3) else None
    if place.name(3) and zero is None:
        raise Refusal("its zero points are no constants")
    if zero is None:
        shift = np.full((columns, blocks), 2.0 ** (bits - 1), np.float32)
    elif zero.dtype == np.uint8:
        shift = unpacked(zero.reshape(columns, -1), bits)[:, :blocks].astype(np.float32)
    else:
        shift = zero.reshape(columns, blocks).astype(np.float32)
    factors = scales.reshape(columns, blocks).astype(np.float32)
    wide = (whole.astype(np.float32) - shift[..., None]) * factors[..., None]
    return np.ascontiguousarray(wide.reshape(columns, -1)[:, :rows].T)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return bytes as the numbers they hold, the low bits first."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


PASS = node_pass(
    "dequantise_blocks", "Sentis imports no weights in blocks of few bits", write,
    operators=["com.microsoft::MatMulNBits", "com.microsoft::GatherBlockQuantized"],
    grows="float weights take eight times the bytes of 4-bit ones",
)  # fmt: skip
