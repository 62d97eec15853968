"""Quantised models back in float: dequantised weights, activations without rounding.

Why: Sentis imports no quantised operator; it quantises weights itself, after import. Constant weights become what
DequantizeLinear makes of them. A QuantizeLinear with its DequantizeLinear becomes the Clip to the range they could
hold (quantisers leave out a Relu that this range implies). QLinear operators become their float ones between such
pairs; DynamicQuantizeLinear with MatMulInteger or ConvInteger becomes the float product, its scale 1. Numbers change
by design: activations are rounded no more. Does not fire on 8-bit floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes import quantised_forms as forms
from converters.passes.emit import FLOAT, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place, View

if TYPE_CHECKING:
    import onnx

INTEGER_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
INT32 = 6


def write(place: Place, emit: Emit) -> None:
    """Write the float form of one operator."""
    op = place.node.op_type
    if op == "DequantizeLinear":
        _dequantise(place, emit)
    elif op == "QuantizeLinear":
        if any(reader.op_type in QUANTISED for reader, _ in place.view.readers.get(place.node.output[0], ())):
            raise Refusal("what reads it is not mended")
        forms.quantised(emit, place.name(0), place.name(1), place.name(2), _axis(place), place.node.output[0])
    elif op == "DynamicQuantizeLinear":
        _dynamic(place, emit)
    elif op in INTEGER_PRODUCTS:
        _integer_product(place, emit)
    elif op == "DynamicQuantizeMatMul":
        weights = forms.dequantised(emit, place.name(1), place.name(2), place.name(3), 1)
        _with_bias(emit, emit("MatMul", place.name(0), weights), place.name(4), place.node.output[0])
    elif op == "MatMulIntegerToFloat":
        _integer_to_float(place, emit)
    else:
        forms.linear(place, emit)


def _axis(place: Place) -> int:
    if place.attributes.get("block_size", 0):
        raise Refusal("it is quantised in blocks")
    return int(place.attributes.get("axis", 1))


def _dequantise(place: Place, emit: Emit) -> None:
    x, scale, zero, to = place.name(0), place.name(1), place.name(2), place.node.output[0]
    maker = place.view.maker(x)
    if maker is not None and maker.op_type in QUANTISED - {"QuantizeLinear", "DynamicQuantizeLinear"}:
        raise Refusal(f"{maker.op_type} before it is not mended")
    values, factors = place.value(0), place.value(1)
    if values is not None and factors is not None and (place.value(2) is not None or not zero):
        block = int(place.attributes.get("block_size", 0))
        emit.result(
            to, forms.dequantised_array(values, factors, place.value(2), place.attributes.get("axis", 1), block)
        )
    elif maker is not None and maker.op_type == "QuantizeLinear" and _same_range(place, list(maker.input)):
        bounds = forms.bounds_of(place.view, maker)
        if bounds is None:
            raise Refusal("its scale is not a constant number")
        emit.clipped(maker.input[0], *bounds, to=to)
    else:
        forms.dequantised(emit, x, scale, zero, _axis(place), to)


def _same_range(place: Place, inputs: list[str]) -> bool:
    """Tell whether a QuantizeLinear used the scale and zero point that this node takes back, as one number."""
    pairs = zip((*inputs[1:3], ""), (place.name(1), place.name(2)), strict=False)
    for theirs, ours in pairs:
        if theirs == ours:
            continue
        values = place.view.value(theirs) if theirs else None, place.view.value(ours) if ours else None
        if values[0] is None or values[1] is None or values[0].shape != values[1].shape:
            return False
        if bool((values[0] != values[1]).any()):
            return False
    scale = place.value(1)
    return scale is not None and scale.size == 1


def _dynamic(place: Place, emit: Emit) -> None:
    """Write x itself with scale 1 where only integer products read it, else the quantisation written out."""
    node, x = place.node, place.name(0)
    outputs = [*node.output, "", "", ""][:3]
    if only_products_read(place.view, node):
        emit("Identity", x, to=outputs[0])
        emit.result(outputs[1], forms.ONE)
        return
    forms.dynamically_quantised(emit, x, outputs)


def only_products_read(view: View, node: onnx.NodeProto) -> bool:
    """Tell whether a dynamic quantisation is read by products alone whose results go through a Cast."""
    outputs = [*node.output, "", "", ""][:3]
    if any(value.name in outputs for value in view.graph.output):
        return False
    readers = view.readers.get(outputs[0], [])
    zeros = view.readers.get(outputs[2], []) if outputs[2] else []
    places = all(reader.op_type in INTEGER_PRODUCTS and position == 0 for reader, position in readers)
    places &= all(reader.op_type in INTEGER_PRODUCTS and position == 2 for reader, position in zeros)
    products = {id(reader): reader for reader, _ in readers}
    matched = all(len(one.input) > 2 and one.input[2] == outputs[2] for one in products.values())
    return (
        bool(readers) and places and matched and all(_goes_to_float(view, one.output[0]) for one in products.values())
    )


def _goes_to_float(view: View, name: str) -> bool:
    readers = view.readers.get(name, [])
    targets = [a.i for reader, _ in readers for a in reader.attribute if reader.op_type == "Cast" and a.name == "to"]
    outside = any(value.name == name for value in view.graph.output)
    return bool(readers) and not outside and targets == [FLOAT] * len(readers)


def _integer_product(place: Place, emit: Emit) -> None:
    node, to = place.node, place.node.output[0]
    op = INTEGER_PRODUCTS[node.op_type]
    kept = dict(place.attributes)
    axis = 1 if op == "MatMul" else 0
    weights = forms.dequantised(emit, place.name(1), "", place.name(3), axis)
    maker = place.view.maker(place.name(0))
    if maker is not None and maker.op_type == "DynamicQuantizeLinear" and only_products_read(place.view, maker):
        emit(op, maker.input[0], weights, to=to, **kept)
        return
    data = forms.dequantised(emit, place.name(0), "", place.name(2), 1)
    emit.cast(emit(op, data, weights, **kept), INT32, to=to)


def _integer_to_float(place: Place, emit: Emit) -> None:
    maker, to = place.view.maker(place.name(0)), place.node.output[0]
    weights = forms.dequantised(emit, place.name(1), place.name(3), place.name(5), 1)
    dynamic = maker is not None and maker.op_type == "DynamicQuantizeLinear" and place.name(2) == maker.output[1]
    data = maker.input[0] if maker is not None and dynamic else ""
    data = data or forms.dequantised(emit, place.name(0), place.name(2), place.name(4), 1)
    _with_bias(emit, emit("MatMul", data, weights), place.name(6), to)


def _with_bias(emit: Emit, product: str, bias: str, to: str) -> None:
    if bias:
        emit("Add", product, bias, to=to)
    else:
        emit("Identity", product, to=to)


OPERATORS = (
    "DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv",
    "QLinearMatMul",
)  # fmt: skip
CONTRIB = (
    "DequantizeLinear", "QuantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearAdd", "QLinearMul",
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", "QLinearAveragePool",
    "QLinearWhere", "QLinearConcat", "QLinearSoftmax", "QGemm",
)  # fmt: skip
QUANTISED = {*OPERATORS, *CONTRIB}
PASS = node_pass(
    "dequantise", "Sentis imports no quantised operator", write,
    operators=[*OPERATORS, *(f"com.microsoft::{op}" for op in CONTRIB)],
    by_design="activations are no longer rounded", grows="float weights take four times the bytes of 8-bit ones",
    again=True,
)  # fmt: skip
