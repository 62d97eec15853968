"""ONNX Runtime's norms with a residual, of embeddings, and its RMS norm, written with operators of ONNX.

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
        if place.view.is_wanted(outputs[1]):
            raise Refusal("its inverse deviation is an output")
        forms.rms_norm(emit, place.name(0), place.name(1), place.attributes.get("epsilon", EPSILON), outputs[0])
        return
    if op == "EmbedLayerNormalization":
        _embedded(place, emit, outputs)
        return
    epsilon = place.attributes.get("epsilon", SKIP_EPSILON)
    simplified = op.startswith("SkipSimplified")
    bias = place.name(3 if simplified else 4)
    both = emit("Add", place.name(0), place.name(1), to="" if bias else outputs[3])
    x = emit("Add", both, bias, to=outputs[3]) if bias else both
    if simplified:
        if any(place.view.is_wanted(name) for name in outputs[1:3]):
            raise Refusal("its moments are outputs")
        forms.rms_norm(emit, x, place.name(2), epsilon, outputs[0])
        return
    forms.moments(emit, x, [-1], epsilon, outputs[1], outputs[2])
    beta = place.name(3) or forms.zeros_like(emit, place.name(2))
    forms.layer_norm(emit, x, place.name(2), beta, epsilon, outputs[0])


def _embedded(place: Place, emit: Emit, outputs: list[str]) -> None:
    """Write the sum of the embeddings of words, places and segments, and its norm."""
    shape = place.shape(0)
    length = shape[1] if shape is not None and len(shape) == 2 else None
    if outputs[1] and not place.name(7) and place.view.is_wanted(outputs[1]):
        raise Refusal("it counts a mask that is not given")
    if place.name(8):
        places = emit("Gather", place.name(3), place.name(8), axis=0)
    elif length is not None:
        places = emit.sliced(place.name(3), [0], [length], [0])
    else:
        raise Refusal("its positions are not given, and the length is not known")
    both = emit("Add", emit("Gather", place.name(2), place.name(0), axis=0), places)
    if place.name(1):
        both = emit("Add", both, emit("Gather", place.name(4), place.name(1), axis=0))
    x = emit("Identity", both, to=outputs[2]) if outputs[2] else both
    if outputs[1] and place.name(7):
        emit.reduced("ReduceSum", place.name(7), [1], to=outputs[1], keepdims=0)
    forms.layer_norm(emit, x, place.name(5), place.name(6), place.attributes.get("epsilon", SKIP_EPSILON), outputs[0])


OPERATORS = (
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization",
    "EmbedLayerNormalization",
)  # fmt: skip
PASS = node_pass(
    "contrib_norm", "Sentis imports no norm of ONNX Runtime's own", write,
    operators=[*(f"com.microsoft::{op}" for op in OPERATORS), "SimplifiedLayerNormalization"],
)  # fmt: skip
