"""The mask of a Dropout that drops nothing: all true.

Why: Sentis makes no mask; what reads it fails at import. Does not fire in training mode (see `evaluation_mode`).
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write Identity and a constant mask of the input's shape."""
    import onnx

    node, x = place.node, place.name(0)
    mode = place.value(2) if place.name(2) else np.array(False)
    if mode is None or bool(mode.any()):
        raise Refusal("it drops in training mode, or may")
    if place.opset < 10 or (place.opset >= 12 and place.view.type(node.output[1]) not in (0, onnx.TensorProto.BOOL)):
        raise Refusal("before opset 10 the mask is no boolean")
    if node.output[0]:
        emit("Identity", x, to=node.output[0])
    truth = onnx.numpy_helper.from_array(np.array([True]), "value")
    emit("ConstantOfShape", emit("Shape", x), to=node.output[1], value=truth)


PASS = node_pass("dropout_mask", "Sentis makes no mask of a Dropout", write, mends=["DROPOUT.MASK"])
