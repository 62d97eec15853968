"""ONNX Runtime's FusedMatMul, TransposeMatMul, FusedConv, FusedGemm and BiasAdd, taken apart.

Why: Sentis imports none of them; its optimiser fuses activations and constant transposes itself. Does not fire where
batch axes are transposed, a rank is not known, or an activation is unknown.
"""

from __future__ import annotations

from typing import Any

from converters.passes import forms
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the operator and what was fused to it."""
    {"FusedConv": _conv, "FusedGemm": _gemm, "BiasAdd": _bias}.get(place.node.op_type, _matmul)(place, emit)


def _matmul(place: Place, emit: Emit) -> None:
    given = place.attributes
    if given.get("transBatchA", 0) or given.get("transBatchB", 0):
        raise Refusal("its batch axes are transposed")
    left, right = place.name(0), place.name(1)
    left = forms.transposed(emit, left, "input 0") if given.get("transA", 0) else left
    right = forms.transposed(emit, right, "input 1") if given.get("transB", 0) else right
    alpha, to = given.get("alpha", 1.0), place.node.output[0]
    if alpha == 1.0:
        emit("MatMul", left, right, to=to)
    else:
        emit("Mul", emit("MatMul", left, right), emit.number(alpha, place.name(0)), to=to)


def _conv(place: Place, emit: Emit) -> None:
    given = dict(place.attributes)
    name, parameters = given.pop("activation", ""), given.pop("activation_params", [])
    summand = place.name(3)
    to = place.node.output[0]
    made = emit("Conv", *[one for one in place.node.input[:3] if one], to="" if name or summand else to, **given)
    if summand:
        made = emit("Add", made, summand, to="" if name else to)
    if name:
        forms.activation(emit, made, name, list(parameters), to)


def _gemm(place: Place, emit: Emit) -> None:
    given: dict[str, Any] = dict(place.attributes)
    name = given.pop("activation", "")
    numbers = [given.pop(f"activation_{key}", None) for key in ("alpha", "beta", "gamma")]
    parameters = [number for number in numbers if number is not None]
    to = place.node.output[0]
    made = emit("Gemm", *place.node.input, to="" if name else to, **given)
    if name:
        forms.activation(emit, made, name, parameters, to)


def _bias(place: Place, emit: Emit) -> None:
    emit("Add", emit("Add", place.name(0), place.name(1)), place.name(2), to=place.node.output[0])


OPERATORS = ("FusedMatMul", "TransposeMatMul", "FusedConv", "FusedGemm", "BiasAdd")
PASS = node_pass(
    "contrib_linear", "Sentis imports no fused product of ONNX Runtime's own", write,
    operators=[f"com.microsoft::{op}" for op in OPERATORS],
)  # fmt: skip
