"""Constant indices below 0 counted from the front.

Why: Sentis wraps negative indices of Gather and Scatter operators as ONNX does, other readers of the file may not; of
DFT it takes no negative axis but -2. On request only. Does not fire where the size of the axis is not known.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

INDEXED = ("Gather", "GatherElements", "ScatterElements")
BY_TUPLE = ("GatherND", "ScatterND")


def has_negative(place: Place) -> bool:
    """Tell whether an index is a constant below 0."""
    value = place.value(1)
    return value is not None and value.dtype.kind == "i" and bool((value < 0).any())


def write(place: Place, emit: Emit) -> None:
    """Write the operator with other indices."""
    node, value, shape = place.node, place.value(1), place.shape(0)
    if value is None or shape is None:
        raise Refusal("the rank is not known")
    if node.op_type in BY_TUPLE:
        first = int(place.attributes.get("batch_dims", 0))
        sizes = shape[first : first + value.shape[-1]]
    else:
        sizes = (shape[int(place.attributes.get("axis", 0))],)
    if None in sizes:
        raise Refusal("the size of the axis is not known")
    positive = np.where(value < 0, value + np.array(sizes, value.dtype), value).astype(value.dtype)
    inputs = [node.input[0], emit.array(positive), *node.input[2:]]
    emit(node.op_type, *inputs, to=node.output[0], **place.attributes)


PASS = node_pass(
    "positive_indices", "other readers than Sentis may not wrap negative indices", write,
    operators=[*INDEXED, *BY_TUPLE], also=has_negative, found=[], on_request=True,
)  # fmt: skip
