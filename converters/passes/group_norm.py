"""GroupNormalization as InstanceNormalization of its groups.

Why: Sentis does not import it. Each group is one channel: Reshape to [N, G, -1], InstanceNormalization, Reshape back,
scale and bias of each channel. onnx's own body computes E[x²] − E[x]², which cancels where means are large; this one
leaves the variance to the layer. Does not fire where the number of channels is not known.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

PER_CHANNEL_OPSET = 21  # from here on scale and bias are one for each channel, before for each group


def write(place: Place, emit: Emit) -> None:
    """Write the five operators."""
    x, scale, bias, to = place.name(0), place.name(1), place.name(2), place.node.output[0]
    shape, groups = place.shape(0), int(place.attributes.get("num_groups", 0))
    if shape is None or len(shape) < 3 or not shape[1] or not groups:
        raise Refusal("its rank or its channels are not known, or it has no spatial axis")
    dtype, channels = emit.dtype(x), shape[1]
    flat = emit.reshaped(x, [0, groups, -1])
    ones, zeros = (emit.array(np.full(groups, value, dtype)) for value in (1, 0))
    normed = emit("InstanceNormalization", flat, ones, zeros, epsilon=place.attributes.get("epsilon", 1e-5))
    spread = [channels, *[1] * (len(shape) - 2)]
    if place.opset < PER_CHANNEL_OPSET:
        normed = emit.reshaped(normed, [0, groups, channels // groups, -1])
        parts = [emit.reshaped(one, [groups, 1, 1]) for one in (scale, bias)]
        made = emit("Add", emit("Mul", normed, parts[0]), parts[1])
        emit.shaped_like(made, x, to=to)
        return
    parts = [emit.reshaped(one, spread) for one in (scale, bias)]
    emit("Add", emit("Mul", emit.shaped_like(normed, x), parts[0]), parts[1], to=to)


PASS = node_pass("group_norm", "Sentis imports no GroupNormalization", write, operators=["GroupNormalization"])
