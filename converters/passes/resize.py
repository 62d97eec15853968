"""Resize where Sentis computes other pixels: as Gather of each axis, or as a product with its interpolation matrix.

Why: Sentis has neither cubic nor antialiasing, knows four coordinate modes, computes sizes in float32 and meets other
ties (rules RESIZE.*). Every form of Resize is linear and works axis by axis. So one axis of it is run in ONNX Runtime
on the identity, with the node's own attributes: nearest gives an index for each pixel (Gather, exact), all else a
matrix. Cubic growth by a whole number needs no size: every pixel has the same weights, a Conv. Does not fire where
sizes, or the region of tf_crop_and_resize, are not known otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from converters.passes.cubic import by_convolution
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

if TYPE_CHECKING:
    import onnx

OWN_SIZE = ("scales", 1.0)  # an axis that keeps its size, whatever it is
MOST_PIXELS = 4096  # of one axis: its matrix has the square of it


def write(place: Place, emit: Emit) -> None:
    """Write one Gather or MatMul for each axis that changes."""
    shape, mode = place.shape(0), place.attributes.get("mode", "nearest")
    if place.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("its policy for the aspect ratio couples the axes")
    if shape is None or (place.opset < 11 and len(place.node.input) != 2):
        raise Refusal("its rank, or where its scales stand, is not known")
    data, rank = place.name(0), len(shape)
    steps = [(axis, shape[axis], target) for axis, target in _targets(place, rank)]
    regions = _regions(place, [axis for axis, _, _ in steps])
    changing = [step for step in steps if step[0] in regions or not _keeps(*step)]
    if not changing:
        emit("Identity", data, to=place.node.output[0])
        return
    unknown = None in [size for _, size, _ in changing] and not regions
    if mode == "cubic" and unknown and (scale := _whole_scale(changing, rank)):
        by_convolution(place, emit, scale, lambda count, times: _matrix(place, count, ("scales", float(times))))
        return
    matrices = {}
    for axis, size, target in changing:
        if size is None:
            raise Refusal(f"the size of axis {axis} is not known; fix it (graph fix-shape)")
        matrices[axis] = _matrix(place, size, target, regions.get(axis))
    outside = _outside(place, matrices, rank) if regions else None
    for number, (axis, matrix) in enumerate(matrices.items()):
        last = number == len(matrices) - 1
        to = place.node.output[0] if last and outside is None else ""
        if mode == "nearest" and bool(matrix.any(axis=0).all()):
            data = emit("Gather", data, emit.array(matrix.argmax(axis=0)), to=to, axis=axis)
        else:
            data = _product(emit, data, matrix.astype(emit.dtype(place.name(0))), axis, rank, to)
    if outside is not None:
        emit("Add", data, emit.array(outside.astype(emit.dtype(place.name(0)))), to=place.node.output[0])


def _regions(place: Place, axes: list[int]) -> dict[int, tuple[float, float]]:
    """Return axis to begin and end of the region that tf_crop_and_resize takes, as shares; none in other modes."""
    if place.attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return {}
    region = place.value(1)
    if region is None or region.size != 2 * len(axes):
        raise Refusal("its region is not known (--bind), or has not two numbers for each axis")
    numbers = region.reshape(2, -1).astype(float)
    return {axis: (float(begin), float(end)) for axis, begin, end in zip(axes, *numbers, strict=True)}


def _outside(place: Place, matrices: dict[int, np.ndarray], rank: int) -> np.ndarray | None:
    """Return what is added where pixels lie outside of the input on any axis: there the products are 0."""
    inside = np.ones([1] * rank)
    for axis, matrix in matrices.items():
        sizes = [matrix.shape[1] if at == axis else 1 for at in range(rank)]
        inside = inside * matrix.any(axis=0).reshape(sizes)
    value = float(place.attributes.get("extrapolation_value", 0.0))
    return None if value == 0.0 or bool(inside.all()) else value * (1 - inside)


def _targets(place: Place, rank: int) -> list[tuple[int, tuple[str, float]]]:
    """Return (axis, (`sizes` or `scales`, number)) for each axis that the node names."""
    old = place.opset < 11
    sizes = [] if old else place.sizes(3) or []
    word, given = ("sizes", sizes) if sizes else ("scales", place.sizes(1 if old else 2) or [])
    axes = place.attributes.get("axes") or list(range(rank))
    if len(given) != len(axes):
        raise Refusal("its sizes or scales are not known, or not one for each axis; fix its input's (graph fix-shape)")
    named = place.view.sizes.get(place.name(0)) or place.shape(0) or ()
    targets = []
    for axis, number in zip(axes, given, strict=True):
        if isinstance(number, str) and word == "sizes" and number == named[axis % rank]:
            targets.append((axis % rank, OWN_SIZE))
        elif isinstance(number, int | float):
            targets.append((axis % rank, (word, float(number))))
        else:
            raise Refusal(f"the new size of axis {axis} is not known; fix the input's (graph fix-shape)")
    return targets


def _whole_scale(changing: list[tuple[int, int | None, tuple[str, float]]], rank: int) -> int:
    """Return the whole number by which both of the last axes grow, 0 for none."""
    scales = {target for _, _, target in changing}
    word, number = next(iter(scales))
    last = [axis for axis, _, _ in changing] == [rank - 2, rank - 1]
    return int(number) if last and len(scales) == 1 and word == "scales" and number == int(number) > 1 else 0


def _keeps(axis: int, size: int | None, target: tuple[str, float]) -> bool:
    word, number = target
    return number == 1.0 if word == "scales" else size is not None and number == size


def _matrix(
    place: Place, size: int, target: tuple[str, float], region: tuple[float, float] | None = None
) -> np.ndarray:
    """Return the interpolation of one axis, [size, new size]: what Resize makes of the identity.

    With a region, a pixel outside of the input has no weights.
    """
    import onnx

    from converters.prove import outputs_of

    word, number = target
    most = number if word == "sizes" else number * size
    if not 0 < size <= MOST_PIXELS or not 1 <= most <= MOST_PIXELS:
        raise Refusal(f"{size} to {most:g} pixels would be a matrix too large")
    dropped = {"axes", "keep_aspect_ratio_policy"}
    given: dict[str, Any] = {name: value for name, value in place.attributes.items() if name not in dropped}
    tensors: dict[str, np.ndarray] = {"x": np.eye(size, dtype=np.float32)[None, None]}
    if place.opset < 11:
        names = ["x", "target"]
    else:
        names = ["x", "", "target"] if word == "scales" else ["x", "", "", "target"]
        if place.opset < 13:
            names[1:-1] = ["none"] * (len(names) - 2)
            tensors["none"] = np.zeros(0, np.float32)
    if region is not None:
        names[1], given["extrapolation_value"] = "region", 0.0
        tensors["region"] = np.array([0, 0, 0, region[0], 1, 1, 1, region[1]], np.float32)
    numbers = [1.0, 1.0, 1.0, number] if word == "scales" else [1, 1, size, int(number)]
    tensors["target"] = np.array(numbers, np.float32 if word == "scales" else np.int64)
    node = onnx.helper.make_node("Resize", names, ["y"], **given)
    return outputs_of(_one_node(node, tensors, place.opset).SerializeToString(), {})["y"][0, 0]


def _one_node(node: onnx.NodeProto, tensors: dict[str, np.ndarray], opset: int) -> onnx.ModelProto:
    import onnx

    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    held = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = onnx.helper.make_graph([node], "resize", [], [made], held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def _product(emit: Emit, data: str, matrix: np.ndarray, axis: int, rank: int, to: str) -> str:
    """Write a product over one axis: from the right on the last, from the left on the last but one."""
    if axis == rank - 1:
        return emit("MatMul", data, emit.array(matrix), to=to)
    if axis == rank - 2:
        return emit("MatMul", emit.array(np.ascontiguousarray(matrix.T)), data, to=to)
    turned = [*range(axis), *range(axis + 1, rank), axis]
    back = [turned.index(position) for position in range(rank)]
    product = emit("MatMul", emit("Transpose", data, perm=turned), emit.array(matrix))
    return emit("Transpose", product, to=to, perm=back)


RULES = ("CUBIC", "COORD", "SIZES_ROUNDING", "SCALES_ROUND", "AXES_SCALES", "CPU_NEAREST_INTSCALE", "NEAREST_TIES")
PASS = node_pass(
    "resize", "Sentis has four forms of Resize and computes sizes in float32", write,
    mends=[f"RESIZE.{rule}" for rule in (*RULES, "DOWN_LINEAR")],
)  # fmt: skip
