"""Reading and writing at indices; Sentis checks no bounds."""

from __future__ import annotations

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws


def indices(n: Node, position: int = 1) -> str:
    """Return an input that must be integers.

    Raises:
        Throws: it is of floats.
    """
    if n.kind(position) != "int":
        raise Throws(f"{n.op} {n.label!r}: indices are read as an int tensor")
    return n.x(position)


def outside(n: Node, at: str, size: str) -> str:
    """Return where indices lie outside an axis of a size (int)."""
    g = n.graph
    over = g.op("GreaterOrEqual", at, size, kind="bool")
    under = g.op("Less", at, g.op("Neg", size), kind="bool")
    return g.op("Or", over, under, kind="bool")


def size_of(n: Node, axis: int) -> str:
    """Return the size of an axis of the first input, as an int of rank 0."""
    g = n.graph
    return g.op("Gather", g.cast(g.op("Shape", n.x(), kind="long"), "int"), g.const(axis, "int"), axis=0)


@form("Gather", says="negative indices count from the end; behind the ends garbage is read")
def gather(n: Node) -> None:
    axis = int(n.attributes.get("axis", 0))
    at = indices(n)
    _within(n, at, axis)
    n.put("Gather", n.x(), _kept(n, at, axis), axis=axis)


@form("GatherElements", says="negative indices count from the end; no bounds are checked")
def gather_elements(n: Node) -> None:
    axis, at = int(n.attributes.get("axis", 0)), indices(n)
    _within(n, at, axis)
    n.put("GatherElements", n.x(), _kept(n, at, axis), axis=axis)


def _within(n: Node, at: str, axis: int) -> None:
    if not _surely_within(n, at, axis):
        n.unknown_if(outside(n, at, size_of(n, axis)), "an index behind the end of the axis: garbage is read")


def _surely_within(n: Node, at: str, axis: int) -> bool:
    values, shape = n.graph.value(at), n.shape()
    size = shape[axis] if values is not None and shape and -len(shape) <= axis < len(shape) else None
    return values is not None and size is not None and bool(((values >= -size) & (values < size)).all())


def _kept(n: Node, at: str, axis: int) -> str:
    """Return indices without those outside, for which ONNX Runtime would refuse the run."""
    if _surely_within(n, at, axis):
        return at
    g = n.graph
    return g.op("Where", outside(n, at, size_of(n, axis)), g.const(0, "int"), at, kind="int")


@form("GatherND", how="identical", says="negative indices count from the end; no bounds are checked")
def gather_nd(n: Node) -> None:
    n.put("GatherND", n.x(), n.graph.cast(indices(n), "long"), batch_dims=int(n.attributes.get("batch_dims", 0)))


@form("Scatter", "ScatterElements", how="identical", says="negative indices count from the end; no bounds are checked")
def scatter_elements(n: Node) -> None:
    n.same_kinds(0, 2)
    reduction = str(n.attributes.get("reduction", "none"))
    inputs = [n.x(), indices(n), n.x(2)]
    n.put("ScatterElements", *inputs, axis=int(n.attributes.get("axis", 0)), reduction=reduction)


@form("ScatterND", says="as ONNX; with a reduction, updates of one place may get lost on the CPU")
def scatter_nd(n: Node) -> None:
    import numpy as np

    n.same_kinds(0, 2)
    reduction = str(n.attributes.get("reduction", "none"))
    at = indices(n)
    n.put("ScatterND", n.x(), n.graph.cast(at, "long"), n.x(2), reduction=reduction)
    if reduction == "none":
        return

    def repeats(where: np.ndarray) -> list[np.ndarray]:
        rows = where.reshape(-1, where.shape[-1])
        return [np.array([len(np.unique(rows, axis=0)) < len(rows)])]

    repeated = n.graph.numpy(repeats, [at], [n.graph.name()], ["bool"])[0]
    n.unknown_if(repeated, "two updates of one place run side by side on the CPU and may get lost (SCATTERND.CPU_RACE)")


@form("NonZero", how="identical", says="as ONNX, as int32")
def non_zero(n: Node) -> None:
    n.graph.cast(n.graph.op("NonZero", n.x(), kind="long"), "int", n.y())


@form("Compress", how="identical", says="as ONNX")
def compress(n: Node) -> None:
    axis = n.attributes.get("axis")
    n.put("Compress", n.x(), n.graph.truth(n.x(1)), axis=None if axis is None else int(axis))


@form("OneHot", how="identical", says="negative indices count from the end; those outside give the off value")
def one_hot(n: Node) -> None:
    g, kind = n.graph, n.kind(2)
    if n.kind(1) != "int" or n.kind(0) != "int":
        raise Throws(f"OneHot {n.label!r}: indices and depth are read as int tensors")
    import numpy as np

    axis = int(n.attributes.get("axis", -1))

    def run(at: np.ndarray, depth: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
        count = int(depth.reshape(-1)[0])
        place = axis if axis >= 0 else axis + at.ndim + 1
        wrapped = np.where(at < 0, at + count, at)
        shape = [1] * (at.ndim + 1)
        shape[place] = count
        hit = np.expand_dims(wrapped, place) == np.arange(count).reshape(shape)
        return [np.where(hit, values[1], values[0])]

    g.numpy(run, n.inputs, n.outputs, [kind])
