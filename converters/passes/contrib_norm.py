"""ONNX Runtime's norms with a residual, and its RMS norm, written with operators of ONNX.

Why: Sentis imports none of them. The RMS norm is written in the form that Sentis fuses. Does not fire on an axis
other than the last, nor where the shape of a missing bias is not known.
"""

from __future__ import annotations

from converters.passes import forms
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

SKIP_EPSILON, EPSILON = 1e-12, 1e-5  # defaults of the operators


def write(place: Place, emit: Emit) -> None:
    """Write the sum, if there is one, and the norm."""
    node, op = place.node, place.node.op_type
    outputs = [*node.output, "", "", "", ""][:4]
    if op == "SimplifiedLayerNormalization":
        rank = place.rank(0)
        if place.attributes.get("axis", -1) not in (-1, *([] if rank is None else [rank - 1])):
            raise Refusal(f"axis {place.attributes['axis']} is not known to be the last")
        if outputs[1]:
            raise Refusal("its inverse deviation is an output")
        forms.rms_norm(emit, place.name(0), place.name(1), place.attributes.get("epsilon", EPSILON), outputs[0])
        return
    epsilon = place.attributes.get("epsilon", SKIP_EPSILON)
    simplified = op.startswith("SkipSimplified")
    bias = place.name(3 if simplified else 4)
    both = emit("Add", place.name(0), place.name(1), to="" if bias else outputs[3])
    x = emit("Add", both, bias, to=outputs[3]) if bias else both
    if simplified:
        if outputs[1] or outputs[2]:
            raise Refusal("its moments are outputs")
        forms.rms_norm(emit, x, place.name(2), epsilon, outputs[0])
        return
    forms.moments(emit, x, [-1], epsilon, outputs[1], outputs[2])
    beta = place.name(3) or forms.zeros_like(emit, place.name(2))
    forms.layer_norm(emit, x, place.name(2), beta, epsilon, outputs[0])


OPERATORS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization")
PASS = node_pass(
    "contrib_norm", "Sentis imports no norm of ONNX Runtime's own", write,
    operators=[*(f"com.microsoft::{op}" for op in OPERATORS), "SimplifiedLayerNormalization"],
)  # fmt: skip
