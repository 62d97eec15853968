"""Operators of arithmetic that Sentis lacks, where a size is known.

Why: it imports no CumProd, Det, TensorScatter, and none of ONNX Runtime's ExpandDims. A running product takes log2(n)
products of the tensor with itself moved by 1, 2, 4, …; a determinant of up to three rows is written out; TensorScatter,
which writes new keys into a cache, becomes a product with a matrix of ones that puts each row at its place, chosen by
Where. Does not fire where the size of the axis is not known, on determinants of more rows, on other axes of a cache
than the second to last.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from converters.passes.emit import FLOATS, INT64, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

LARGEST_DETERMINANT = 3


def write(place: Place, emit: Emit) -> None:
    """Write one operator."""
    WRITERS[place.node.op_type](place, emit, place.node.output[0])


def _running_product(place: Place, emit: Emit, to: str) -> None:
    shape, axis, given = place.shape(0), place.value(1), place.attributes
    if shape is None or axis is None or axis.size != 1:
        raise Refusal("its rank or its axis is not known")
    at = int(axis.reshape(())) % len(shape)
    size = shape[at]
    if not size:
        raise Refusal("the size of its axis is not known")
    back, x = bool(given.get("reverse", 0)), place.name(0)
    if given.get("exclusive", 0):
        x = _moved(emit, x, 1, at, len(shape), back=back)
    step = 1
    while step < size:
        x = emit("Mul", x, _moved(emit, x, step, at, len(shape), back=back))
        step *= 2
    emit("Identity", x, to=to)


def _moved(emit: Emit, x: str, step: int, axis: int, rank: int, *, back: bool) -> str:
    """Return a tensor moved along an axis, with ones where nothing was."""
    part = emit.sliced(x, [step], [2**31 - 1], [axis]) if back else emit.sliced(x, [0], [-step], [axis])
    pads = [0] * 2 * rank
    pads[axis + rank if back else axis] = step
    return emit.padded(part, pads, 1.0)


def _determinant(place: Place, emit: Emit, to: str) -> None:
    shape = place.shape(0)
    count = shape[-1] if shape is not None and len(shape) > 1 else None
    if not count or count > LARGEST_DETERMINANT:
        raise Refusal(f"it has more than {LARGEST_DETERMINANT} rows, or their number is not known")

    def number(row: int, column: int) -> str:
        rows = emit("Gather", place.name(0), emit.array(np.array(row, np.int64)), axis=-2)
        return emit("Gather", rows, emit.array(np.array(column, np.int64)), axis=-1)

    def minor(rows: list[int], columns: list[int], name: str = "") -> str:
        if len(rows) == 1:
            return emit("Identity", number(rows[0], columns[0]), to=name) if name else number(rows[0], columns[0])
        terms = [
            emit("Mul", number(rows[0], column), minor(rows[1:], [one for one in columns if one != column]))
            for column in columns
        ]
        total = terms[0]
        for index, term in enumerate(terms[1:], 1):
            last = name if index == len(terms) - 1 else ""
            total = emit("Sub" if index % 2 else "Add", total, term, to=last)
        return total

    minor(list(range(count)), list(range(count)), to)


def _tensor_scatter(place: Place, emit: Emit, to: str) -> None:
    """Write the update [B, …, S, H] into the cache [B, …, T, H] at each row's place."""
    cache, update, rank = place.shape(0), place.shape(1), place.rank(0)
    if cache is None or update is None or rank is None or rank < 3 or cache[-2] is None or update[-2] is None:
        raise Refusal("the lengths of its cache and its update are not known")
    axis = int(place.attributes.get("axis", -2))
    if axis not in (-2, rank - 2) or place.view.type(place.name(0)) not in FLOATS:
        raise Refusal("its axis is not the second to last, or it holds no floats")
    total, count = cache[-2], update[-2]
    first = place.name(2) or emit.ints(0)
    if place.name(2) and place.view.type(first) != INT64:
        first = emit.cast(first, INT64)
    places = emit("Add", emit.unsqueezed(first, [1]), emit.ints(*range(count)))  # [B, S]
    if place.attributes.get("mode", "linear") == "circular":
        places = emit("Mod", places, emit.ints(total))
    rows = emit.array(np.arange(total, dtype=np.int64)[:, None])
    met = emit("Equal", rows, emit.unsqueezed(places, [1]))  # [B, T, S]
    ones = emit.cast(met, emit.element(place.name(0)))
    ones = emit.unsqueezed(ones, list(range(1, rank - 2))) if rank > 3 else ones
    moved = emit("MatMul", ones, place.name(1))
    written = emit("Greater", emit.reduced("ReduceMax", ones, [-1]), emit.number(0, place.name(0)))
    emit("Where", written, moved, place.name(0), to=to)


def _expand_dims(place: Place, emit: Emit, to: str) -> None:
    axis = place.value(1)
    if axis is None or axis.size != 1:
        raise Refusal("its axis is no constant")
    emit.unsqueezed(place.name(0), [int(axis.reshape(()))], to=to)


WRITERS: dict[str, Callable[[Place, Emit, str], None]] = {
    "CumProd": _running_product, "Det": _determinant, "TensorScatter": _tensor_scatter, "ExpandDims": _expand_dims,
}  # fmt: skip
OPERATORS = ["com.microsoft::ExpandDims" if op == "ExpandDims" else op for op in WRITERS]
PASS = node_pass("arithmetic", "Sentis lacks some operators of arithmetic", write, operators=OPERATORS)
