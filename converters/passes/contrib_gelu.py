"""ONNX Runtime's Gelu, FastGelu, BiasGelu and QuickGelu written with operators of ONNX.

Why: Sentis looks at an operator's name only: com.microsoft's Gelu is taken for ONNX' (and is), the others are not
imported. FastGelu's cube is x·x·x, see `gelu_tanh`.
"""

from __future__ import annotations

from converters.passes import forms
from converters.passes.emit import Emit
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

ALPHA = 1.702  # QuickGelu's own default


def write(place: Place, emit: Emit) -> None:
    """Write the activation behind its bias."""
    op, to, x = place.node.op_type, place.node.output[0], place.name(0)
    if place.name(1):
        x = emit("Add", x, place.name(1))
    if op == "FastGelu":
        forms.gelu_tanh(emit, x, to)
    elif op == "QuickGelu":
        alpha = emit.number(place.attributes.get("alpha", ALPHA), place.name(0))
        emit("Mul", x, emit("Sigmoid", emit("Mul", x, alpha)), to=to)
    else:
        forms.gelu_erf(emit, x, to)


PASS = node_pass(
    "contrib_gelu", "Sentis imports no activation of ONNX Runtime's own", write,
    operators=[f"com.microsoft::{op}" for op in ("Gelu", "FastGelu", "BiasGelu", "QuickGelu")],
    undone_as=["GeluFast"],
)  # fmt: skip
