"""TopK, with the kernel's own selection of the smallest."""

from __future__ import annotations

import numpy as np

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws, Unknown
from weights_bridge.compare import Array


@form(
    "TopK",
    says="always sorted, lower index first; the smallest by an insertion list whose threshold mixes signs",
)
def top_k(n: Node) -> None:
    g, axis = n.graph, int(n.attributes.get("axis", -1))
    largest = bool(n.attributes.get("largest", 1))
    k = g.const([int(n.attributes["k"])], "int") if n.opset < 10 else n.x(1)
    kind = n.kind()
    outputs = [n.y() or g.name(), n.y(1) or g.name()]
    wrong = g.name()

    def run(x: Array, count: Array) -> list[Array]:
        if count.ndim != 1 or count.size != 1:
            raise Throws(f"TopK {n.label!r}: k must have the shape [1]")
        if not 0 <= int(count[0]) <= x.shape[axis]:
            raise Unknown(f"TopK {n.label!r}: k is larger than the axis, places behind its end are not written")
        values, at = select(x, int(count[0]), axis, largest)
        right, _ = ordered(x, int(count[0]), axis, largest)
        return [values, at, np.array(not np.array_equal(values, right, equal_nan=kind == "float"))]

    g.numpy(run, [n.x(), k], [*outputs, wrong], [kind, "int", "bool"])
    if not largest:
        n.deviates_if(wrong, "TOPK.SMALLEST_NEGATIVE")


def ordered(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """Return the k first values in order with their indices, the lower index first among equals."""
    order = np.argsort(-x.astype(np.float64) if largest else x, axis=axis, kind="stable")
    at = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, at, axis), at


def select(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """Return what the kernel selects.

    It keeps a sorted list. A value v is skipped where the list is full and dir·v ≤ thr; else it takes the place behind
    the last, or that of the last, and moves up past those with dir·prev < dir·v. Then thr = min(dir·last, v), which
    mixes signs for the smallest (dir = −1). At first thr = dir·x[0].
    """
    if largest or k == 0:
        return ordered(x, k, axis, largest)
    rows = np.moveaxis(x, axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    values, at = np.empty((len(flat), k), x.dtype), np.empty((len(flat), k), np.int32)
    for row, (found, where) in zip(flat, zip(values, at, strict=True), strict=True):
        kept = _smallest(row, k)
        found[:], where[:] = row[kept], kept
    shape = (*rows.shape[:-1], k)
    return np.moveaxis(values.reshape(shape), -1, axis), np.moveaxis(at.reshape(shape), -1, axis)


def _smallest(row: Array, k: int) -> list[int]:
    """Return the indices that the kernel keeps of one row."""
    kept, threshold = [0], -row[0]
    for index in range(1, len(row)):
        v = row[index]
        if len(kept) == k:
            if -v <= threshold:
                continue
            kept[-1] = index
        else:
            kept.append(index)
        place = len(kept) - 1
        while place and -row[kept[place - 1]] < -v:
            kept[place - 1], kept[place] = kept[place], kept[place - 1]
            place -= 1
        threshold = min(-row[kept[-1]], v)
    return kept
