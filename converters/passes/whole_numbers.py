"""Integers of fewer bits, which Sentis holds as int32 whatever their type says.

Why: nothing wraps: a Cast to UINT8 leaves 300 as it is, BitwiseNot inverts 32 bits, BitShift is not imported. The
remainder is written out before the Cast (Mod), the complement as a difference, a shift as a product or quotient. Does
not fire on floats (ONNX leaves a float outside of the target's range undefined), on amounts that are no constants, and
on UINT32 and UINT64, whose upper half no int32 holds.
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
    count, signed = bits.bits_of(place)
    amount = place.value(1)
    if amount is None or signed:
        raise Refusal("its amount is no constant")
    element, x = place.view.type(place.name(0)), emit.cast(place.name(0), bits.INT32)
    powers = emit.array((2 ** np.minimum(amount.astype(np.int32), count)).astype(np.int32))
    if place.attributes.get("direction") == "RIGHT":
        made = emit("Div", x, powers)
    else:  # a shift by all bits or more is a multiple of 2^bits, whether int32 wraps or not
        made = emit("Mod", emit("Mul", x, powers), emit.array(np.array(2**count, np.int32)))
    emit.cast(made, element, to=place.node.output[0])


def _inverted(place: Place, emit: Emit) -> None:
    bits.inverted(place, emit)


WRITERS: dict[str, Callable[[Place, Emit], None]] = {"Cast": _cast, "BitwiseNot": _inverted, "BitShift": _shift}
PASS = node_pass(
    "whole_numbers", "Sentis holds all integers as int32", write,
    mends=["CAST.NARROW_INT", "BITWISENOT.UNSIGNED"], operators=["BitShift"],
)  # fmt: skip
