"""A graph of opset 16 to 25 written in opset 15.

A node stays as it is where opset 15's definition of its operator takes its attributes and inputs; what differs has a
way here, and what has none is named. Sources: the operator definitions of onnx.defs at both opsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from converters.passes import bits, forms, fourier, grid_sample, images
from converters.passes.base import Context
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import UNFIT, names_of, splice
from converters.scan.operators import label_of
from converters.scan.view import Place

if TYPE_CHECKING:
    import onnx

# attribute to the value that an older definition means by leaving it out
HARMLESS: dict[str, tuple[Any, ...]] = {
    "saturate": (1,), "round_mode": ("up",), "reduction": ("none",), "antialias": (0,), "allowzero": (0,),
    "keep_aspect_ratio_policy": ("stretch",), "stash_type": (1,), "dilations": ([1], [1, 1], [1, 1, 1]),
    "noop_with_empty_axes": (0,),
}  # fmt: skip


def lowered(model: onnx.ModelProto, context: Context, opset: int, target: int) -> dict[str, str]:
    """Convert a model in place; return node to reason where it cannot, and then change nothing."""
    view, known = context.view(model), context.known
    ways = WAYS | {"DFT": partial(fourier.dft, opset=opset)}  # what its axis defaults to hangs on the opset
    taken, replaced, left = names_of(model.graph), dict[int, Emit](), dict[str, str]()
    for index, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx") or _same(node.op_type, opset, target):
            continue
        place = Place(node, view, target, known)
        emit = Emit(place, taken, f"opset{target}")
        try:
            if ways.get(node.op_type, _unchanged)(place, emit):
                replaced[index] = emit
        except Refusal as reason:
            left[label_of(node)] = f"{node.op_type}: {reason}"
        except UNFIT as error:
            left[label_of(node)] = f"{node.op_type}: its inputs or attributes do not fit ({type(error).__name__})"
    if not left:
        splice(model.graph, replaced)
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = target
    return left


def _schema(op: str, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def _same(op: str, opset: int, target: int) -> bool:
    new, old = _schema(op, opset), _schema(op, target)
    return new is not None and old is not None and new.since_version == old.since_version


def _unchanged(place: Place, emit: Emit) -> bool:
    """Leave a node that the older definition takes, without attributes that say what it does anyway.

    Raises:
        Refusal: it does not take the node.
    """
    node, old = place.node, _schema(place.node.op_type, place.opset)
    if old is None:
        raise Refusal(f"not in opset {place.opset}")
    foreign = [name for name in place.attributes if name not in old.attributes]
    for name in foreign:
        if place.attributes[name] not in HARMLESS.get(name, ()):
            raise Refusal(f"{name} = {place.attributes[name]} is not in opset {place.opset}")
    if len(place.positions) > old.max_input or len(node.output) > old.max_output:
        raise Refusal(f"opset {place.opset} takes {old.max_input} inputs and {old.max_output} outputs")
    if not foreign:
        return False
    kept = {name: value for name, value in place.attributes.items() if name not in foreign}
    emit.many(node.op_type, node.input, node.output, **kept)
    return True


def _reduction(place: Place, emit: Emit) -> bool:
    """Write axes as an attribute."""
    given, axes = dict(place.attributes), place.value(1)
    if place.name(1) and axes is None:
        raise Refusal("its axes are not constant")
    noop = given.pop("noop_with_empty_axes", 0)
    if noop and (axes is None or not axes.size):
        raise Refusal("it keeps its input where no axes are given")
    named = [int(axis) for axis in axes.reshape(-1)] if axes is not None and axes.size else None
    emit(place.node.op_type, place.name(0), to=place.node.output[0], **given, axes=named)
    return True


def _split(place: Place, emit: Emit) -> bool:
    """Write the sizes of equal parts."""
    node, given = place.node, dict(place.attributes)
    if "num_outputs" not in given:
        return False
    axis, shape = int(given.get("axis", 0)), place.shape(0)
    size = shape[axis] if shape is not None else None
    if size is None:
        raise Refusal("the size of its axis is not known")
    part = math.ceil(size / len(node.output))
    sizes = [min(part, size - part * index) for index in range(len(node.output))]
    emit.many("Split", [place.name(0), emit.ints(*sizes)], node.output, axis=axis)
    return True


def _pad(place: Place, emit: Emit) -> bool:
    """Write the pads of every axis."""
    if place.attributes.get("mode", "constant") == "wrap":
        images.padded_by_gather(place, emit, place.node.output[0])
        return True
    if not place.name(3):
        return False
    pads, axes, rank = place.sizes(1), place.sizes(3), place.rank(0)
    if pads is None or axes is None or rank is None or not all(isinstance(one, int) for one in (*pads, *axes)):
        raise Refusal("its pads, axes or rank are not known")
    pads, axes = [int(one or 0) for one in pads], [int(one or 0) for one in axes]
    count, full = len(axes), [0] * 2 * rank
    for index, axis in enumerate(one % rank for one in axes):
        full[axis], full[axis + rank] = pads[index], pads[index + count]
    emit("Pad", place.name(0), emit.ints(*full), *([place.name(2)] if place.name(2) else []), to=place.node.output[0],
         **place.attributes)  # fmt: skip
    return True


def _resize(place: Place, emit: Emit) -> bool:
    """Write scales or sizes of every axis."""
    given, axes = dict(place.attributes), place.attributes.get("axes")
    if given.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        raise Refusal("half_pixel_symmetric is not in opset 15")
    if not axes:
        return _unchanged(place, emit)
    import numpy as np

    shape, word = place.shape(0), 3 if place.name(3) else 2
    values = place.value(word)
    if shape is None or values is None or (word == 3 and None in shape):
        raise Refusal("its sizes are not known")
    full = np.array([size or 0 for size in shape], np.int64) if word == 3 else np.ones(len(shape), np.float32)
    full[[axis % len(shape) for axis in axes]] = values
    inputs = [place.name(0), "", *([""] if word == 3 else []), emit.array(full)]
    kept = {
        name: value for name, value in given.items() if name not in ("axes", "antialias", "keep_aspect_ratio_policy")
    }
    if given.get("antialias", 0) or given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("antialias and aspect policies are not in opset 15")
    emit("Resize", *inputs, to=place.node.output[0], **kept)
    return True


def _layer_norm(place: Place, emit: Emit) -> bool:
    axis, rank = place.attributes.get("axis", -1), place.rank(0)
    if axis not in (-1, (rank or 0) - 1) or any(place.node.output[1:]) or not place.name(2):
        raise Refusal("it has several axes, no bias, or moments as outputs: layer_norm mends that first")
    epsilon = place.attributes.get("epsilon", 1e-5)
    x, scale, bias = (place.name(position) for position in range(3))
    forms.layer_norm(emit, x, scale, bias, epsilon, place.node.output[0])
    return True


def _gelu(place: Place, emit: Emit) -> bool:
    tanh = place.attributes.get("approximate", "none") == "tanh"
    (forms.gelu_tanh if tanh else forms.gelu_erf)(emit, place.name(0), place.node.output[0])
    return True


def _mish(place: Place, emit: Emit) -> bool:
    emit("Mul", place.name(0), emit("Tanh", emit("Softplus", place.name(0))), to=place.node.output[0])
    return True


def _swish(place: Place, emit: Emit) -> bool:
    """Write x · sigmoid(alpha · x); without alpha it is the form that Sentis fuses back."""
    x, alpha = place.name(0), place.attributes.get("alpha", 1.0)
    inner = x if alpha == 1.0 else emit("Mul", x, emit.number(alpha, x))
    emit("Mul", x, emit("Sigmoid", inner), to=place.node.output[0])
    return True


def _roi_align(place: Place, emit: Emit) -> bool:
    if place.attributes.get("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise Refusal("half_pixel is not in opset 15")
    kept = {name: v for name, v in place.attributes.items() if name != "coordinate_transformation_mode"}
    emit("RoiAlign", *place.node.input, to=place.node.output[0], **kept)
    return True


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
WAYS: dict[str, Callable[[Place, Emit], bool]] = {
    **{f"Reduce{name}": _reduction for name in REDUCTIONS},
    "Split": _split, "Pad": _pad, "Resize": _resize, "LayerNormalization": _layer_norm, "Gelu": _gelu, "Mish": _mish,
    "Swish": _swish,
    "RoiAlign": _roi_align, "GridSample": grid_sample.sample, "BitwiseNot": bits.inverted,
    "STFT": fourier.stft, **{f"Bitwise{name}": bits.combined for name in ("And", "Or", "Xor")},
}  # fmt: skip
