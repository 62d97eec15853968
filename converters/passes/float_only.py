"""Integers cast to FLOAT for operators that Sentis computes on floats only, and the result cast back.

Why: the import passes, then Schedule throws. ONNX has integer forms of Relu, MatMul, MaxPool, Resize, ReduceMean and
more; in float32 they are exact as long as no number passes 2²⁴. Does not fire where the type of the result is not
known.
"""

from __future__ import annotations

from converters.onnx_file import type_name
from converters.passes.emit import FLOAT, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

OF_ALL, OF_TWO = {"Einsum", "Mean"}, {"PRelu", "MatMul", "Gemm"}
OPERATORS = (
    "Relu", "PRelu", "LeakyRelu", "MatMul", "Gemm", "Einsum", "Mean", "MaxPool", "Resize", "ReduceMean", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "Sqrt", "Exp", "Ceil", "Floor", "Round",
)  # fmt: skip


def write(place: Place, emit: Emit) -> None:
    """Write the operator between casts."""
    node, op, to = place.node, place.node.op_type, place.node.output[0]
    if any(place.view.is_wanted(name) for name in node.output[1:]):
        raise Refusal("it has several outputs that are read")
    back = place.view.type(to) or place.view.type(place.name(0))
    if place.known.kind(type_name(back)) != "int":
        raise Refusal("the type of its result is not known, or is a float")
    most = len(node.input) if op in OF_ALL or op == "Gemm" else 2 if op in OF_TWO else 1
    cast = [place.kind(position) == "int" and position < most for position in range(len(node.input))]
    inputs = [emit.cast(name, FLOAT) if number else name for name, number in zip(node.input, cast, strict=True)]
    emit.cast(emit(op, *inputs, **place.attributes), back, to=to)


PASS = node_pass(
    "float_only", "Sentis computes many operators on floats only", write,
    mends=[f"{op.upper()}.INT_INPUT" for op in OPERATORS],
)  # fmt: skip
