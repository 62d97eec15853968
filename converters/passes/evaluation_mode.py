"""Dropout and BatchNormalization that were exported in training mode, put into evaluation mode.

Why: Sentis never drops anything and always takes the running statistics. The file is made to say so. Numbers change
by design: training mode draws by chance, or normalises by the batch. Does not fire where batch statistics are read.
"""

from __future__ import annotations

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write Identity, or the norm by its running statistics."""
    node = place.node
    if node.op_type == "Dropout":
        if any(place.view.is_wanted(name) for name in node.output[1:]):
            raise Refusal("its mask is read, and drawn by chance")
        emit("Identity", place.name(0), to=node.output[0])
        return
    if any(place.view.is_wanted(name) for name in node.output[1:]):
        raise Refusal("its batch statistics are read: export the model in evaluation mode")
    kept = {name: place.attributes[name] for name in ("epsilon",) if name in place.attributes}
    emit("BatchNormalization", *node.input, to=node.output[0], **kept)


def _trains(place: Place) -> bool:
    return bool(place.attributes.get("training_mode", 0))


PASS = node_pass(
    "evaluation_mode", "Sentis computes Dropout and BatchNormalization as in evaluation, whatever the file says", write,
    mends=["DROPOUT.TRAINING", "BATCHNORM.TRAINING_OUTPUTS", "BATCHNORM.TRAINING_OLD"],
    operators=["BatchNormalization"], also=_trains,
    by_design="training mode draws by chance or normalises by the batch",
)  # fmt: skip
