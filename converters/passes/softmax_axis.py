"""Softmax, LogSoftmax and Hardmax before opset 13, flattened.

Why: until opset 12 all dimensions from `axis` on (1 when absent) share one sum; Sentis takes one axis (-1 when
absent). Does not fire where both mean the same: the last axis, or others of size 1.
"""

from __future__ import annotations

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

OPERATORS = ("Softmax", "LogSoftmax", "Hardmax")
COUNTS_BACK = 11  # the opset from which Flatten and these take a negative axis


def write(place: Place, emit: Emit) -> None:
    """Write Flatten, the operator over axis 1, Reshape."""
    x = place.name(0)
    axis, rank = place.attributes.get("axis", 1), place.rank(0)
    if axis < 0 and rank is None and place.opset < COUNTS_BACK:
        raise Refusal(f"axis {axis}: the rank of {x!r} is not known")
    axis += rank if axis < 0 and rank is not None else 0
    flat = emit("Flatten", x, axis=axis)
    last = -1 if place.opset >= COUNTS_BACK else 1  # of two
    emit.shaped_like(emit(place.node.op_type, flat, axis=last), x, to=place.node.output[0])


PASS = node_pass(
    "softmax_axis", "before opset 13 Softmax sums over all axes from `axis` on, Sentis over one", write,
    mends=[f"{op.upper()}.OPSET_LT13" for op in OPERATORS],
)  # fmt: skip
