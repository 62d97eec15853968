"""Quantisation written out: what DequantizeLinear and QuantizeLinear compute, and float operators between them.

Formulas: ONNX operator definitions. x = (q − zero) · scale; q = saturate(round(x / scale) + zero), round half to
even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.onnx_file import type_name
from converters.passes.emit import FLOAT, Emit, Refusal
from converters.scan.view import Place, View

if TYPE_CHECKING:
    import onnx

ONE = np.array(1, np.float32)
UINT8 = 2
RANGES = {
    "UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767), "UINT4": (0, 15),
    "INT4": (-8, 7), "UINT2": (0, 3), "INT2": (-2, 1), "INT32": (-(2**31), 2**31 - 1),
}  # fmt: skip


def dequantised_array(
    values: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, axis: int, block: int = 0
) -> np.ndarray:
    """Return (values − zero) · scale in float32, in the scale's type at the end.

    Args:
        values: integers of any shape.
        scale: one number, one per index of `axis`, or of a block along it.
        zero: of the scale's shape.
        axis: along which scales differ.
        block: length of a block, 0 for none.
    """
    whole = values.astype(np.float32)
    factors, shift = (one if one is None else one.astype(np.float32) for one in (scale, zero))
    assert factors is not None
    if block:
        rows = values.shape[axis]
        factors = np.repeat(factors, block, axis=axis).take(range(rows), axis=axis)
        shift = None if shift is None else np.repeat(shift, block, axis=axis).take(range(rows), axis=axis)
    elif factors.size > 1:
        spread = [1] * values.ndim
        spread[axis] = -1
        factors = factors.reshape(spread)
        shift = shift.reshape(spread) if shift is not None and shift.size > 1 else shift
    if shift is not None:
        whole = whole - (shift.reshape(()) if shift.size == 1 else shift)
    return (whole * (factors.reshape(()) if factors.size == 1 else factors)).astype(scale.dtype)


def bounds_of(view: View, node: onnx.NodeProto) -> tuple[float, float] | None:
    """Return the range that a QuantizeLinear of one scale can hold; None where it is not constant."""
    scale = view.value(node.input[1])
    zero = view.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    kind = type_name(view.type(node.output[0])) if view.type(node.output[0]) else "UINT8"
    if scale is None or scale.size != 1 or kind not in RANGES:
        return None
    factor, shift = float(scale.reshape(())), float(zero.reshape(())) if zero is not None else 0.0
    low, high = RANGES[kind]
    return (low - shift) * factor, (high - shift) * factor


def dequantised(emit: Emit, x: str, scale: str, zero: str, axis: int, to: str = "") -> str:
    """Return a quantised tensor as floats: a constant where everything is, else written out.

    Args:
        emit: writes.
        x: the tensor.
        scale: its scale; empty for 1.
        zero: its zero point; empty for 0.
        axis: along which scales differ.
        to: the name of the output.
    """
    view = emit.place.view
    parts = [view.value(name) if name else None for name in (x, scale, zero)]
    if all(part is not None for part, name in zip(parts, (x, scale, zero), strict=True) if name):
        factors = ONE if parts[1] is None else parts[1]
        shift = parts[2]
        if shift is not None and factors.size == 1 and shift.size > 1:
            factors = np.full(shift.shape, factors.reshape(()), factors.dtype)
        if parts[0] is None:
            raise Refusal("it has no input")
        array = dequantised_array(parts[0], factors, shift, axis)
        if not to:
            return emit.array(array)
        emit.result(to, array)
        return to
    element = emit.element(scale) if scale else FLOAT
    made = emit.cast(x, element)
    if zero:
        made = emit("Sub", made, emit.cast(_spread(emit, zero, x, axis), element), to="" if scale else to)
    if scale:
        made = emit("Mul", made, _spread(emit, scale, x, axis), to=to)
    return made if made == to or not to else emit("Identity", made, to=to)


def _spread(emit: Emit, name: str, x: str, axis: int) -> str:
    """Return one number per index of an axis in a shape that broadcasts."""
    shape, data = emit.place.view.shape(name), emit.place.view.shape(x)
    if shape is None:
        raise Refusal(f"the shape of {name!r} is not known")
    if all(size == 1 for size in shape):
        return name if not shape else emit.squeezed(name, list(range(len(shape))))
    if len(shape) != 1 or data is None:
        raise Refusal(f"{name!r} is no number per axis, or the rank of {x!r} is not known")
    spread = [1] * len(data)
    spread[axis] = -1
    return emit.reshaped(name, spread)


def quantised(emit: Emit, x: str, scale: str, zero: str, axis: int, to: str) -> None:
    """Write saturate(round(x / scale) + zero) of the output's type."""
    view = emit.place.view
    element = (view.type(zero) if zero else 0) or view.type(to) or UINT8
    if type_name(element) not in RANGES:
        raise Refusal(f"{type_name(element)} is no integer type")
    if emit.place.opset < 11:
        raise Refusal("there is no Round before opset 11")
    made = emit("Round", emit("Div", x, _spread(emit, scale, x, axis)))
    if zero:
        made = emit("Add", made, emit.cast(_spread(emit, zero, x, axis), emit.element(x)))
    emit.cast(emit.clipped(made, *RANGES[type_name(element)]), element, to=to)


def dynamically_quantised(emit: Emit, x: str, outputs: list[str]) -> None:
    """Write DynamicQuantizeLinear: a scale over the range of x, zero included, 255 steps."""
    rank = emit.place.rank(0)
    if emit.place.opset < 11 or not rank:
        raise Refusal("its rank is not known, or there is no Round before opset 11")
    axes = list(range(rank))
    none = emit.number(0, x)
    low = emit("Min", emit.reduced("ReduceMin", x, axes, keepdims=0), none)
    high = emit("Max", emit.reduced("ReduceMax", x, axes, keepdims=0), none)
    scale = emit("Div", emit("Sub", high, low), emit.number(255, x), to=outputs[1])
    zero = emit.clipped(emit("Round", emit("Div", emit("Neg", low), scale)), 0, 255)
    if outputs[2]:
        emit.cast(zero, UINT8, to=outputs[2])
    whole = emit("Add", emit("Round", emit("Div", x, scale)), zero)
    emit.cast(emit.clipped(whole, 0, 255), UINT8, to=outputs[0])


def linear(place: Place, emit: Emit) -> None:
    """Write a QLinear operator as its float one between DequantizeLinear and QuantizeLinear.

    Raises:
        Refusal: channels come last, or another form that is not known.
    """
    if place.attributes.get("channels_last", 0):
        raise Refusal("its channels come last")
    write = LINEAR.get(place.node.op_type)
    if write is None:
        raise Refusal("no float form is known")
    made, at = write(place, emit)
    result = [made, *(name for name in (place.name(at), place.name(at + 1)) if name)]
    emit("QuantizeLinear", *result, to=place.node.output[0])


def _taken(place: Place, emit: Emit, at: int, axis: int | None = None) -> str:
    """Return an input of a QLinear operator with scale and zero point behind it as floats."""
    if place.value(at) is not None:
        return dequantised(emit, place.name(at), place.name(at + 1), place.name(at + 2), 0 if axis is None else axis)
    scale = place.shape(at + 1)
    if scale is None or any(size != 1 for size in scale):
        raise Refusal("its scales differ along an axis of a tensor that is no constant")
    return emit("DequantizeLinear", *(place.name(p) for p in (at, at + 1, at + 2) if place.name(p)))


def _conv(place: Place, emit: Emit) -> tuple[str, int]:
    inputs = [_taken(place, emit, 0), _taken(place, emit, 3, 0)]
    if place.name(8):
        bias, scales = place.value(8), (place.value(1), place.value(4))
        if bias is None or scales[0] is None or scales[1] is None:
            raise Refusal("its bias or scales are not constant")
        inputs.append(emit.array((bias * (scales[0] * scales[1]).reshape(-1)).astype(np.float32)))
    return emit("Conv", *inputs, **place.attributes), 6


def _pair(op: str) -> Callable[[Place, Emit], tuple[str, int]]:
    def write(place: Place, emit: Emit) -> tuple[str, int]:
        axis = 1 if op == "MatMul" else None
        return emit(op, _taken(place, emit, 0, axis), _taken(place, emit, 3, axis)), 6

    return write


def _single(op: str) -> Callable[[Place, Emit], tuple[str, int]]:
    def write(place: Place, emit: Emit) -> tuple[str, int]:
        kept: dict[str, Any] = {k: v for k, v in place.attributes.items() if k not in ("channels_last", "opset")}
        return emit(op, _taken(place, emit, 0), **kept), 3

    return write


def _where(place: Place, emit: Emit) -> tuple[str, int]:
    return emit("Where", place.name(0), _taken(place, emit, 1), _taken(place, emit, 4)), 7


def _concat(place: Place, emit: Emit) -> tuple[str, int]:
    parts = [_taken(place, emit, at) for at in range(2, len(place.node.input), 3)]
    return emit("Concat", *parts, axis=int(place.attributes.get("axis", 0))), 0


def _gemm(place: Place, emit: Emit) -> tuple[str, int]:
    if not place.name(7):
        raise Refusal("its output is float")
    inputs = [_taken(place, emit, 0), _taken(place, emit, 3, 0 if place.attributes.get("transB", 0) else 1)]
    if place.name(6):
        bias, scales = place.value(6), (place.value(1), place.value(4))
        if bias is None or scales[0] is None or scales[1] is None:
            raise Refusal("its bias or scales are not constant")
        alpha = float(place.attributes.get("alpha", 1.0))
        inputs.append(emit.array((bias * (alpha * scales[0] * scales[1]).reshape(-1)).astype(np.float32)))
    return emit("Gemm", *inputs, **place.attributes), 7


LINEAR: dict[str, Callable[[Place, Emit], tuple[str, int]]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _pair("MatMul"),
    "QLinearAdd": _pair("Add"),
    "QLinearMul": _pair("Mul"),
    "QLinearSigmoid": _single("Sigmoid"),
    "QLinearLeakyRelu": _single("LeakyRelu"),
    "QLinearGlobalAveragePool": _single("GlobalAveragePool"),
    "QLinearSoftmax": _single("Softmax"),
    "QLinearAveragePool": _single("AveragePool"),
    "QLinearWhere": _where,
    "QLinearConcat": _concat,
    "QGemm": _gemm,
}
