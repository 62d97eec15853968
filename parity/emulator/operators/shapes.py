"""Shapes and layouts: nothing is computed, sizes are int32."""

from __future__ import annotations

import numpy as np

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws, Unknown

INPUT_FROM = {"Squeeze": 13, "Unsqueeze": 13, "Slice": 10, "Reshape": 5, "Pad": 11}


def long_of(n: Node, attribute: str, position: int) -> str:
    """Return integers as ONNX wants them, from an attribute that is read at this opset or else an input; or empty."""
    given = n.attributes.get(attribute)
    if given is not None:
        return n.graph.const(list(given) if isinstance(given, list | tuple) else [given], "long")
    return n.graph.cast(n.x(position), "long") if n.x(position) else ""


@form("Concat", how="identical", says="as ONNX")
def concat(n: Node) -> None:
    n.same_kinds()
    n.same(axis=int(n.attributes["axis"]))


@form("Shape", how="identical", says="as ONNX, as int32")
def shape(n: Node) -> None:
    found = n.graph.op(
        "Shape", n.x(), kind="long", start=int(n.attributes.get("start", 0)), end=n.attributes.get("end")
    )
    n.graph.cast(found, "int", n.y())


@form("Size", how="identical", says="as ONNX, as int32")
def size(n: Node) -> None:
    n.graph.cast(n.graph.op("Size", n.x(), kind="long"), "int", n.y())


@form("Reshape", how="identical", says="0 copies a size unless allowzero, -1 is what is left; at most 8 sizes")
def reshape(n: Node) -> None:
    n.put("Reshape", n.x(), long_of(n, "shape", 1), allowzero=int(n.attributes.get("allowzero", 0)))


@form("Flatten", how="identical", says="as ONNX")
def flatten(n: Node) -> None:
    n.same(axis=int(n.attributes.get("axis", 1)))


@form(
    "Squeeze", says="without axes every size of 1 goes; from opset 13 on an attribute counts for none", where="importer"
)
def squeeze(n: Node) -> None:
    n.put("Squeeze", n.x(), *filter(None, [long_of(n, "axes", 1)]))


@form("Unsqueeze", how="identical", says="as ONNX", where="importer")
def unsqueeze(n: Node) -> None:
    axes = long_of(n, "axes", 1)
    if not axes:
        raise Throws(f"Unsqueeze {n.label!r}: axes must be an attribute before opset 13 and an input from there on")
    n.put("Unsqueeze", n.x(), axes)


@form("Transpose", how="identical", says="without perm all axes are turned round")
def transpose(n: Node) -> None:
    n.same(perm=n.attributes.get("perm"))


@form("Slice", how="identical", says="as ONNX; bounds saturate at int32")
def slice_(n: Node) -> None:
    bounds = [long_of(n, "starts", 1), long_of(n, "ends", 2), long_of(n, "axes", 3)]
    if n.opset < 10:
        bounds = bounds if bounds[2] else bounds[:2]
    else:
        bounds = [n.graph.cast(n.x(at), "long") if n.x(at) else "" for at in range(1, len(n.inputs))]
    n.put("Slice", n.x(), *bounds)


@form("Split", says="without sizes: parts of ceil(size / n), the last one smaller", where="inference")
def split(n: Node) -> None:
    g, axis = n.graph, int(n.attributes.get("axis", 0))
    sizes = long_of(n, "split", 1)
    kinds = [n.kind()] * len(n.outputs)
    if sizes:
        g.many("Split", [n.x(), sizes], n.outputs, kinds, axis=axis)
        return
    count = int(n.attributes.get("num_outputs", len(n.outputs)))
    g.many("Split", [n.x()], n.outputs, kinds, axis=axis, num_outputs=count)


@form("Expand", how="identical", says="as ONNX")
def expand(n: Node) -> None:
    n.put("Expand", n.x(), n.graph.cast(n.x(1), "long"))


@form("Tile", how="identical", says="as ONNX")
def tile(n: Node) -> None:
    n.put("Tile", n.x(), n.graph.cast(n.x(1), "long"))


@form("Trilu", how="identical", says="as ONNX")
def trilu(n: Node) -> None:
    g, upper = n.graph, int(n.attributes.get("upper", 1))
    k = [g.cast(n.x(1), "long")] if n.x(1) else []
    if n.kind() == "float":
        n.put("Trilu", n.x(), *k, upper=upper)
    else:  # ONNX Runtime has it for int64 only
        g.cast(g.op("Trilu", g.cast(n.x(), "long"), *k, upper=upper), "int", n.y())


@form("DepthToSpace", how="identical", says="DCR, any other mode is CRD", where="importer")
def depth_to_space(n: Node) -> None:
    b, mode = int(n.attributes["blocksize"]), n.attributes.get("mode", "DCR")
    if n.kind() == "float":
        n.put("DepthToSpace", n.x(), blocksize=b, mode=mode)
        return

    def run(x: np.ndarray) -> list[np.ndarray]:  # ONNX Runtime has no form for integers
        rows, channels, height, width = x.shape
        parts, order = ((b, b, channels // b**2), (0, 3, 4, 1, 5, 2))
        if mode != "DCR":
            parts, order = ((channels // b**2, b, b), (0, 1, 4, 2, 5, 3))
        split = x.reshape(rows, *parts, height, width).transpose(order)
        return [split.reshape(rows, channels // b**2, height * b, width * b)]

    n.numpy(run, [n.x()], "int")


@form("SpaceToDepth", how="identical", says="as ONNX, in the order DCR")
def space_to_depth(n: Node) -> None:
    b = int(n.attributes["blocksize"])
    if n.kind() == "float":
        n.put("SpaceToDepth", n.x(), blocksize=b)
        return

    def run(x: np.ndarray) -> list[np.ndarray]:
        rows, channels, height, width = x.shape
        split = x.reshape(rows, channels, height // b, b, width // b, b).transpose(0, 3, 5, 1, 2, 4)
        return [split.reshape(rows, channels * b * b, height // b, width // b)]

    n.numpy(run, [n.x()], "int")


@form("Range", says="start + i·delta; the length is computed in float32")
def range_(n: Node) -> None:
    kind = n.same_kinds()

    def run(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> list[np.ndarray]:
        if any(one.ndim for one in (start, limit, delta)):
            raise Throws(f"Range {n.label!r} wants scalars of rank 0: an assertion")
        steps = (np.float32(limit) - np.float32(start)) / np.float32(delta)
        if not np.isfinite(steps):
            raise Unknown(f"Range {n.label!r}: a step of zero")
        count = max(0, int(np.ceil(steps)))
        return [start + np.arange(count).astype(start.dtype) * delta]

    n.numpy(run, n.inputs, kind)


@form(
    "Pad", says="constant, reflect, edge, wrap; negative pads crop; a reflection as long as the axis stops at its end"
)
def pad(n: Node) -> None:
    g, mode = n.graph, str(n.attributes.get("mode", "constant"))
    kind = n.kind()
    if n.opset < 11:
        given = n.attributes.get("pads", n.attributes.get("paddings"))
        if given is None:
            raise Throws(f"Pad {n.label!r}: pads must be given")
        inputs = [n.x(), g.const(list(given), "int"), g.const(n.attributes.get("value", 0.0), kind), ""]
    else:
        inputs = [n.x(), n.x(1), n.x(2), n.x(3)]
        if n.x(2) and g.kind(n.x(2)) != kind:
            raise Throws(f"Pad {n.label!r}: the fill value is read as the type of the data")
    if mode == "constant" and not inputs[3]:
        value = [inputs[2]] if inputs[2] else []
        n.put("Pad", n.x(), g.cast(inputs[1], "long"), *value, mode=mode)
        return

    def run(x: np.ndarray, pads: np.ndarray, value: np.ndarray | None, axes: np.ndarray | None) -> list[np.ndarray]:
        return [padded(x, pads, 0 if value is None else value.item(), axes, mode)]

    n.numpy(run, inputs, kind)


def padded(x: np.ndarray, pads: np.ndarray, value: float, axes: np.ndarray | None, mode: str) -> np.ndarray:
    """Return a padded array as Sentis computes it, one axis after the other."""
    chosen = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
    count = len(chosen)
    for at, axis in enumerate(chosen):
        before, after = int(pads[at]), int(pads[at + count])
        length = x.shape[axis]
        index = np.arange(-before, length + after)
        if mode == "reflect":
            beyond = index >= length  # one reflection at most, what it leaves outside stops at the end
            index = np.where(index < 0, -index, np.where(beyond, 2 * (length - 1) - index, index))
            index = np.clip(index, 0, length - 1)
        elif mode == "edge":
            index = np.clip(index, 0, length - 1)
        elif mode == "wrap":
            index = index % length
        if mode == "constant":
            inside = (index >= 0) & (index < length)
            taken = np.take(x, np.clip(index, 0, max(length - 1, 0)), axis) if length else None
            shape = [1] * x.ndim
            shape[axis] = -1
            full = np.full((*x.shape[:axis], len(index), *x.shape[axis + 1 :]), value, x.dtype)
            x = full if taken is None else np.where(inside.reshape(shape), taken, full)
        else:
            x = np.take(x, index, axis)
    return x
