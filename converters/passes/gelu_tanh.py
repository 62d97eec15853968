"""Gelu(approximate="tanh") written out, and a tanh chain that Sentis would fuse to it.

Why: Sentis makes it GeluFast, which clamps its inner argument at ±16 and computes the cube with a power, undefined
for negative numbers on some GPUs. The cube is written as x·x·x: the chain with Pow is fused back to GeluFast. Does
not fire on the exact form, which Sentis computes as ONNX does.
"""

from __future__ import annotations

from converters.passes import forms
from converters.passes.emit import Emit
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the tanh chain, or the cube of one that is there."""
    if place.node.op_type == "Pow":
        x = place.name(0)
        emit("Mul", emit("Mul", x, x), x, to=place.node.output[0])
        return
    forms.gelu_tanh(emit, place.name(0), place.node.output[0])


PASS = node_pass(
    "gelu_tanh", "Sentis computes Gelu(tanh) as GeluFast, with a clamp and a power", write,
    mends=["GELU.TANH", "POW.GELU_FAST"], undone_as=["GeluFast"],
)  # fmt: skip
