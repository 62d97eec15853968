"""Gelu(approximate="tanh") written out.

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
    """Write the tanh chain."""
    forms.gelu_tanh(emit, place.name(0), place.node.output[0])


PASS = node_pass(
    "gelu_tanh", "Sentis computes Gelu(tanh) as GeluFast, with a clamp and a power", write, mends=["GELU.TANH"]
)
