"""Operators of ONNX whose attribute or corner Sentis misses, written with simpler ones.

Why, rule by rule: SWISH.ALPHA (2.4 and 2.5 ignore alpha), ASINH.NEGATIVE (loses its digits below −100), CAST.TO_BOOL
(stays as it was, 0.7 becomes 0), CAST.FOLD_ROUNDING (the import rounds what a run truncates), POW.INT (an integer
base goes through float32), REDUCE….NOOP (comes out as it went in), RANGE.RANK1 (wants scalars),
TRANSPOSE.CHAIN_NO_PERM (crashes), LSTM.NO_HIDDEN (aborts), DFT.NEG_AXIS (fails on the CPU), POW.INT_EXP_MINUS1
(becomes a root of integers, which throws), DIV.CONST_ZERO (the import divides by it and aborts),
MATMUL.CONST_RANK3_ADD (a constant weight of rank 1 is taken as rank 2). Does not fire where a shape or an exponent that
decides is not known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from converters.passes.emit import FLOAT, FLOATS, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

INTEGERS = {6: np.int32, 7: np.int64}  # INT32, INT64
HIGHEST_POWER = 4
ROOTS = (-1.0, 0.5, -0.5)  # exponents that the optimiser takes for Reciprocal and Sqrt
BOOL = 9


def write(place: Place, emit: Emit) -> None:
    """Write one operator."""
    WRITERS[place.node.op_type](place, emit, place.node.output[0])


def _swish(place: Place, emit: Emit, to: str) -> None:
    x = place.name(0)
    emit("Mul", x, emit("Sigmoid", emit("Mul", x, emit.number(place.attributes.get("alpha", 1.0), x))), to=to)


def _asinh(place: Place, emit: Emit, to: str) -> None:
    x = place.name(0)
    emit("Mul", emit("Sign", x), emit("Asinh", emit("Abs", x)), to=to)


def _cast(place: Place, emit: Emit, to: str) -> None:
    if place.attributes.get("to") == BOOL:
        _truth(place, emit, to)
        return
    x = place.name(0)
    whole = emit("Mul", emit("Sign", x), emit("Floor", emit("Abs", x)))  # towards 0, as a run rounds
    emit.cast(whole, int(place.attributes["to"]), to=to)


def _truth(place: Place, emit: Emit, to: str) -> None:
    element = emit.element(place.name(0))
    if element not in INTEGERS and element not in FLOATS:
        raise Refusal("its type is not known, or has no comparison everywhere")
    dtype = INTEGERS[element] if element in INTEGERS else emit.dtype(place.name(0))
    emit("Not", emit("Equal", place.name(0), emit.array(np.array(0, dtype))), to=to)


def _power(place: Place, emit: Emit, to: str) -> None:
    exponent, x = place.value(1), place.name(0)
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(())) in ROOTS:
        made = emit("Pow", emit.cast(x, FLOAT), emit.array(exponent.astype(np.float32)))
        emit.cast(made, place.view.type(x), to=to)
        return
    if exponent is None or exponent.size != 1 or float(exponent.reshape(())) not in range(1, HIGHEST_POWER + 1):
        raise Refusal(f"its exponent is not a constant of 1 to {HIGHEST_POWER}")
    if exponent.ndim > (place.rank(0) or 0):
        raise Refusal("its exponent gives the result another rank")
    power, made = int(exponent.reshape(())), x
    for step in range(2, power + 1):
        made = emit("Mul", made, x, to=to if step == power else "")
    if power == 1:
        emit("Identity", x, to=to)


def _quotient(place: Place, emit: Emit, to: str) -> None:
    """Write x / c where c holds zeros: by 1 there, times infinity of the zero's sign."""
    divisor = place.value(1)
    if divisor is None or divisor.dtype.kind != "f":
        raise Refusal("integers divided by zero are undefined in ONNX too")
    zero = divisor == 0
    ones = emit("Div", place.name(0), emit.array(np.where(zero, 1, divisor).astype(divisor.dtype)))
    signs = np.where(zero, np.copysign(np.inf, divisor), 1).astype(divisor.dtype)
    emit("Mul", ones, emit.array(signs), to=to)


def _product(place: Place, emit: Emit, to: str) -> None:
    """Write a product with a vector as one with a column."""
    rank = place.rank(0)
    if place.rank(1) != 1 or not rank or rank < 2:
        raise Refusal("its weight has a rank above 2, or its input's rank is not known")
    column = emit.reshaped(place.name(1), [-1, 1])
    emit.squeezed(emit("MatMul", place.name(0), column), [rank - 1], to=to)


def _reduction(place: Place, emit: Emit, to: str) -> None:
    x, op = place.name(0), place.node.op_type
    if op == "ReduceSumSquare":
        emit("Mul", x, x, to=to)
    else:
        emit({"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}.get(op, "Identity"), x, to=to)


def _range(place: Place, emit: Emit, to: str) -> None:
    bounds = []
    for position in range(3):
        rank = place.rank(position)
        if rank is None or (rank and any(size != 1 for size in place.shape(position) or ())):
            raise Refusal("a bound is not known to be one number")
        bounds.append(emit.squeezed(place.name(position), list(range(rank))) if rank else place.name(position))
    emit("Range", *bounds, to=to)


def _transpose(place: Place, emit: Emit, to: str) -> None:
    before, rank = place.view.maker(place.name(0)), place.rank(0)
    if before is None or rank is None:
        raise Refusal("its rank is not known")
    reverse = list(range(rank))[::-1]
    first = next((list(attribute.ints) for attribute in before.attribute if attribute.name == "perm"), reverse)
    second = place.attributes.get("perm") or reverse
    emit("Transpose", before.input[0], to=to, perm=[first[axis] for axis in second])


def _lstm(place: Place, emit: Emit, to: str) -> None:
    recurrent = place.shape(2)
    if recurrent is None or len(recurrent) != 3 or recurrent[2] is None:
        raise Refusal("the shape of its weights is not known")
    emit.many("LSTM", place.node.input, place.node.output, **place.attributes, hidden_size=recurrent[2])


def _dft(place: Place, emit: Emit, to: str) -> None:
    axis, rank = place.value(2), place.rank(0)
    if axis is None or rank is None:
        raise Refusal("its axis or its rank is not known")
    positive = emit.array(np.where(axis < 0, axis + rank, axis).astype(axis.dtype))
    emit("DFT", place.name(0), place.name(1), positive, to=to, **place.attributes)


REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
WRITERS: dict[str, Callable[[Place, Emit, str], None]] = {
    "Swish": _swish, "Asinh": _asinh, "Cast": _cast, "Pow": _power, "Range": _range, "Transpose": _transpose,
    "LSTM": _lstm, "DFT": _dft, "Div": _quotient, "MatMul": _product, **dict.fromkeys(REDUCTIONS, _reduction),
}  # fmt: skip
RULES = ("SWISH.ALPHA", "ASINH.NEGATIVE", "CAST.TO_BOOL", "POW.INT", "RANGE.RANK1", "TRANSPOSE.CHAIN_NO_PERM")
RULES += ("LSTM.NO_HIDDEN", "DFT.NEG_AXIS", "CAST.FOLD_ROUNDING", "POW.INT_EXP_MINUS1", "DIV.CONST_ZERO")
RULES += ("MATMUL.CONST_RANK3_ADD",)
PASS = node_pass(
    "written_out", "Sentis misses corners of some operators", write,
    mends=[*RULES, *(f"{op.upper()}.NOOP" for op in REDUCTIONS)],
)  # fmt: skip
