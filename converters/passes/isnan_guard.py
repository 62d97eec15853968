"""Where(IsNaN(Softmax(x)), c, Softmax(x)) without its guard, where the mask in x is known to be finite.

Why: GPUPixel does not detect NaN, and the guard costs three operators a layer. Softmax gives NaN for rows that are
-inf everywhere. Fires where every constant that reaches x through masks is finite and no float input does; what
products put into x is taken to be finite, as for any other layer. Does not fire on masks with -inf and masks that the
caller feeds.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import FLOATS, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.answers import CARRIERS
from converters.scan.view import Place

FOLLOWED = CARRIERS | {"Add", "Sub", "Mul", "Where", "Concat", "Cast", "Min", "Max", "Neg", "Clip"}
STOPS = {"MatMul", "Gemm", "Einsum", "Conv", "LayerNormalization", "Tanh", "Sigmoid", "Softmax", "Shape", "Range"}
FOLLOWED_AT_MOST = 200


def is_guard(place: Place) -> bool:
    """Tell whether a Where replaces the NaN of a Softmax."""
    maker = place.view.maker(place.name(0))
    if maker is None or maker.op_type != "IsNaN" or maker.input[0] != place.name(2):
        return False
    guarded = place.view.maker(place.name(2))
    return guarded is not None and guarded.op_type == "Softmax"


def write(place: Place, emit: Emit) -> None:
    """Write the Softmax through."""
    softmax = place.view.maker(place.name(2))
    if softmax is None:
        raise Refusal("nothing makes its input")
    _require_finite(place, softmax.input[0])
    emit("Identity", place.name(2), to=place.node.output[0])


def _require_finite(place: Place, name: str) -> None:
    view, waiting, seen = place.view, [name], set[str]()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        maker = view.maker(current)
        value = view.value(current)
        if value is not None:
            if value.dtype.kind == "f" and not bool(np.isfinite(value).all()):
                raise Refusal(f"{current!r} holds values that are not finite")
        elif current in view.inputs:
            if view.type(current) in FLOATS:
                raise Refusal(f"the input {current!r} reaches it and may hold -inf")
        elif maker is not None and maker.op_type in FOLLOWED and len(seen) < FOLLOWED_AT_MOST:
            waiting += list(maker.input[1:]) if maker.op_type == "Where" else [one for one in maker.input if one]
        elif maker is None or maker.op_type not in STOPS:
            by = maker.op_type if maker is not None else "an unread constant"
            raise Refusal(f"{current!r}, of {by}, is not known to be finite")


PASS = node_pass(
    "isnan_guard", "GPUPixel does not detect NaN, and a finite mask makes none", write,
    operators=["Where"], also=is_guard, found=["ISNAN.GPUPIXEL"],
)  # fmt: skip
