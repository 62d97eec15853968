"""Windows and mel matrices whose inputs are constants, as constants.

Why: Sentis' HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix read the model's first tensor where they
should read their own input. Their value is computed once, in ONNX Runtime. Does not fire where an input depends on the
model's inputs.
"""

from __future__ import annotations

from converters.passes.emit import Emit, Refusal
from converters.passes.fold import Folder, run_node
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

OPERATORS = ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
MOST_ELEMENTS = 1 << 22


def write(place: Place, emit: Emit) -> None:
    """Write the node's value."""
    folder = Folder(place.view, place.opset)
    values = {name: folder.value(name) for name in place.node.input if name}
    known = {name: value for name, value in values.items() if value is not None}
    if len(known) < len(values) or not values:
        raise Refusal("an input depends on the model's inputs; fix their shapes, or bind one (--bind)")
    result = run_node(place.node, known, place.node.output[0], place.opset)
    if result is None or result.size > MOST_ELEMENTS:
        raise Refusal("ONNX Runtime does not compute it, or it has millions of numbers")
    emit.result(place.node.output[0], result)


PASS = node_pass(
    "baked", "Sentis' window operators read another tensor than their input", write,
    mends=[f"{op.upper()}.INDEX" for op in OPERATORS],
)  # fmt: skip
