"""Bitwise operators written with whole numbers: opset 15, which Sentis 2.4 documents, has none.

A number becomes its binary digits on a new last axis (division by powers of two, remainder of 2), digits are combined
as numbers 0 and 1, and summed up again. Numbers of 32 bits and more are taken as int32, the only integers that Sentis
has: their lowest 31 digits, and the sign for the highest.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.scan.view import Place

INT32 = 6
UNSIGNED = {2: 8, 4: 16}  # UINT8, UINT16: bits
SIGNED = {3: 8, 5: 16, 6: 32, 7: 32}  # INT8, INT16, INT32, INT64 as Sentis takes it
WIDEST = 31  # digits beside the sign
MOST_RANK = 7  # the digits are one axis more, and Sentis has eight


def bits_of(place: Place, position: int = 0) -> tuple[int, bool]:
    """Return how many bits an input has, and whether it has a sign.

    Raises:
        Refusal: its type is not known, or Sentis has no such numbers.
    """
    element = place.view.type(place.name(position))
    if element in UNSIGNED:
        return UNSIGNED[element], False
    if element in SIGNED:
        return SIGNED[element], True
    raise Refusal("its type is not known, or holds numbers above 2³¹ − 1, which Sentis has not")


def inverted(place: Place, emit: Emit) -> bool:
    """Write BitwiseNot: −1 − x, or 2^bits − 1 − x where there is no sign."""
    bits, signed = bits_of(place)
    element = place.view.type(place.name(0))
    highest = emit.array(np.array(-1 if signed else 2**bits - 1, np.int32))
    emit.cast(emit("Sub", highest, emit.cast(place.name(0), INT32)), element, to=place.node.output[0])
    return True


def combined(place: Place, emit: Emit) -> bool:
    """Write BitwiseAnd, BitwiseOr or BitwiseXor."""
    bits, signed = bits_of(place)
    ranks = [place.rank(0), place.rank(1)]
    if None in ranks or max(rank or 0 for rank in ranks) > MOST_RANK:
        raise Refusal("its ranks are not known, or the digits would be a ninth dimension")
    count = min(bits, WIDEST)
    powers = emit.array(2 ** np.arange(count, dtype=np.int32))
    numbers = [emit.cast(place.name(position), INT32) for position in (0, 1)]
    sides = [_digits(emit, number, powers, signed=signed) for number in numbers]
    made = _joined(emit, place.node.op_type, sides[0][0], sides[1][0])
    total = emit.reduced("ReduceSum", emit("Mul", made, powers), [-1], keepdims=0)
    if signed:
        sign = _joined(emit, place.node.op_type, sides[0][1], sides[1][1])
        most = emit.array(np.array(2 ** min(bits, WIDEST) - 1, np.int32))  # 2³¹ itself is no int32
        below = emit("Add", emit("Mul", sign, most), sign)
        total = emit("Sub", total, below)
    emit.cast(total, place.view.type(place.name(0)), to=place.node.output[0])
    return True


def _digits(emit: Emit, number: str, powers: str, *, signed: bool) -> tuple[str, str]:
    """Return the digits on a new last axis, and 1 where the number is below zero."""
    two, sign = emit.array(np.array(2, np.int32)), ""
    if signed:
        zero, most = emit.array(np.array(0, np.int32)), emit.array(np.array(2**31 - 1, np.int32))
        sign = emit.cast(emit("Less", number, zero), INT32)
        number = emit("Add", emit("Add", number, emit("Mul", sign, most)), sign)  # + 2³¹: the digits below the sign
    place = emit("Unsqueeze", number, emit.ints(-1))
    return emit("Mod", emit("Div", place, powers), two), sign


def _joined(emit: Emit, op: str, left: str, right: str) -> str:
    if op == "BitwiseAnd":
        return emit("Mul", left, right)
    if op == "BitwiseOr":
        return emit("Max", left, right)
    return emit("Mod", emit("Add", left, right), emit.array(np.array(2, np.int32)))
