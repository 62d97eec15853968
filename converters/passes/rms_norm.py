"""RMSNormalization written out, or flattened to its last axis.

Why: Sentis 2.4 and 2.5 do not import it; 2.6 ignores `axis` (always the last) and wants a scale of rank 1. The form
is the one that Sentis fuses. Does not fire where sizes that must be flattened are not known.
"""

from __future__ import annotations

import math

from converters.passes import forms
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the norm of the normalised axes, flattened where there are several."""
    x, scale, to = place.name(0), place.name(1), place.node.output[0]
    axis, shape = place.attributes.get("axis", -1), place.shape(0)
    epsilon = place.attributes.get("epsilon", 1e-5)
    first = axis % len(shape) if shape else -1
    if axis != -1 and not shape:
        raise Refusal(f"axis {axis}: the rank is not known")
    if axis == -1 or (shape and first == len(shape) - 1):
        forms.rms_norm(emit, x, scale, epsilon, to)
        return
    sizes = (shape or ())[first:]
    if None in sizes:
        raise Refusal("the normalised sizes are not known")
    known = [one or 0 for one in sizes]
    flat = emit.reshaped(x, [*([0] * first), math.prod(known)])
    made = emit.name()
    forms.rms_norm(emit, flat, forms.in_a_row(emit, 1, known), epsilon, made)
    emit.shaped_like(made, x, to=to)


PASS = node_pass(
    "rms_norm", "Sentis 2.4 imports no RMSNormalization, 2.6 ignores its axis", write,
    mends=["RMSNORM.AXIS"], operators=["RMSNormalization"],
)  # fmt: skip
