"""Integers of fewer bits, which Sentis holds as int32 whatever their type says.

Why: nothing wraps: a Cast to UINT8 leaves 300 as it is, BitwiseNot inverts 32 bits, BitShift is not imported. The
remainder is written out before the Cast (Mod), the complement as a difference, a shift as a product with, or quotient
by, powers of two out of a table. Does not fire on floats (ONNX leaves a float outside of the target's range undefined),
on shifts of INT64, and on UINT32 and UINT64, whose upper half no int32 holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from converters.passes import bits
from converters.passes.emit import FLOATS, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

INT64 = 7
NARROW = {2: (8, False), 3: (8, True), 4: (16, False), 5: (16, True)}  # UINT8, INT8, UINT16, INT16
NOT_HELD = (12, 13)  # UINT32, UINT64


def write(place: Place, emit: Emit) -> None:
    """Write one operator."""
    WRITERS[place.node.op_type](place, emit)


def _cast(place: Place, emit: Emit) -> None:
    source, target = place.view.type(place.name(0)), int(place.attributes["to"])
    if not source or source in FLOATS:
        raise Refusal("from floats: ONNX leaves numbers outside of the range undefined; clip them where they can occur")
    if source in NOT_HELD or target not in NARROW:
        raise Refusal("numbers above 2³¹ − 1 do not exist in Sentis")
    count, signed = NARROW[target]
    x = place.name(0) if source == INT64 else emit.cast(place.name(0), bits.INT32)
    dtype = np.int64 if source == INT64 else np.int32
    emit.cast(_wrapped(emit, x, count, signed, dtype), target, to=place.node.output[0])


def _wrapped(emit: Emit, x: str, count: int, signed: bool, dtype: type) -> str:
    """Return a number's remainder of 2^bits, from −2^(bits − 1) on where there is a sign."""
    whole, half = (emit.array(np.array(2**power, dtype)) for power in (count, count - 1))
    low = emit("Mod", x, whole)
    return emit("Sub", emit("Mod", emit("Add", low, half), whole), half) if signed else low


def _shift(place: Place, emit: Emit) -> None:
    """Write a shift; by all bits or more, or by less than none, only the sign of a shift to the right is left."""
    count, signed = bits.bits_of(place)
    element = place.view.type(place.name(0))
    if element == INT64:
        raise Refusal("numbers above 2³¹ − 1 do not exist in Sentis")
    made, amounts = emit.cast(place.name(0), bits.INT32), np.arange(count + 1)
    if place.attributes.get("direction") == "RIGHT":
        first = np.minimum(amounts, 16)
        for powers in (2**first, 2 ** (amounts - first))[: 1 + (count > 16)]:  # 2³¹ itself is no int32
            divisor = _chosen(place, emit, powers.astype(np.int32))
            rest = emit("Sub", made, emit("Mod", made, divisor)) if signed else made  # Div would round towards 0
            made = emit("Div", rest, divisor)
    else:  # a shift by all bits is a multiple of 2^bits, whether int32 wraps or not
        made = emit("Mul", made, _chosen(place, emit, (2**amounts).astype(np.int32)))
        made = _wrapped(emit, made, count, signed, np.int32) if count < 32 else made
    emit.cast(made, element, to=place.node.output[0])


def _chosen(place: Place, emit: Emit, powers: np.ndarray) -> str:
    """Return the powers [bits + 1] that the amounts stand for; an amount outside stands for the last."""
    last, amount = len(powers) - 1, place.value(1)
    if amount is not None:
        amount = amount.astype(np.int64)
        return emit.array(powers[np.where(amount < 0, last, np.minimum(amount, last))])
    numbers = [emit.array(np.array(number, np.int32)) for number in (last, -1, last + 1)]
    most, least, count = numbers
    inside = emit("Max", emit("Min", emit.cast(place.name(1), bits.INT32), most), least)
    return emit("Gather", emit.array(powers), emit("Mod", inside, count))  # −1 becomes the last


def _arithmetic(place: Place, emit: Emit) -> None:
    """Write a sum, difference or product in int32 and its remainder; int32 itself wraps at a multiple of 2^bits."""
    count, signed = bits.bits_of(place)
    element = place.view.type(place.name(0))
    if element not in NARROW:
        raise Refusal("int32 wraps as ONNX does")
    made = emit(place.node.op_type, *(emit.cast(name, bits.INT32) for name in place.node.input))
    emit.cast(_wrapped(emit, made, count, signed, np.int32), element, to=place.node.output[0])


def _bits_taken(place: Place, emit: Emit) -> None:
    """Write BitCast between integers of as many bits, with a sign or without: the remainder again."""
    source, target = place.view.type(place.name(0)), int(place.attributes["to"])
    if source not in NARROW or target not in NARROW or NARROW[source][0] != NARROW[target][0]:
        raise Refusal("bits of floats, and of 32 and more, are taken for something else than Sentis holds")
    made = _wrapped(emit, emit.cast(place.name(0), bits.INT32), *NARROW[target], np.int32)
    emit.cast(made, target, to=place.node.output[0])


def _inverted(place: Place, emit: Emit) -> None:
    bits.inverted(place, emit)


WRITERS: dict[str, Callable[[Place, Emit], None]] = {
    "Cast": _cast, "BitwiseNot": _inverted, "BitShift": _shift, "BitCast": _bits_taken,
    **dict.fromkeys(("Add", "Sub", "Mul"), _arithmetic),
}  # fmt: skip
PASS = node_pass(
    "whole_numbers", "Sentis holds all integers as int32", write,
    mends=["CAST.NARROW_INT", "BITWISENOT.UNSIGNED", "ADD.NARROW", "SUB.NARROW", "MUL.NARROW"],
    operators=["BitShift", "BitCast"],
)  # fmt: skip
