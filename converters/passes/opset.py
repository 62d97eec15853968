"""The file's opset brought into the window that Sentis documents.

Why: 2.4 and 2.5 document opsets 7 to 15, 2.6 documents 7 to 25. Up, and down inside what onnx converts, onnx's own
version converter is taken; down to 15 is done here, node by node (`down.py`), because onnx has no way there for
reductions with axes as inputs, Split, Pad, LayerNormalization and more. Does not fire on graphs with bodies; it
converts all or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes.base import Context, Outcome, Pass
from converters.passes.down import lowered
from converters.passes.light import take_nodes, told
from converters.scan.graphs import graphs_in
from converters.scan.model import opset_of

if TYPE_CHECKING:
    import onnx

OWN_TARGET = 15  # what `down.py` knows the way to


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Convert the model to the nearest opset of the window."""
    low, high = context.known["opset_window"]
    opset = opset_of(model)
    if low <= opset <= high or not context.room():
        return Outcome()
    if any(True for node in model.graph.node for attribute in node.attribute for _ in graphs_in(attribute)):
        return Outcome(0, {"opset": "the model has bodies of control flow"})
    if opset > high == OWN_TARGET:
        left = lowered(model, context, opset, high)
    else:
        left = _converted(model, low if opset < low else high)
    if left:
        return Outcome(0, left)
    context.spend(0)
    target = low if opset < low else high
    return Outcome(1, {}, [f"opset {opset} to {target}"])


def _converted(model: onnx.ModelProto, target: int) -> dict[str, str]:
    """Let onnx convert the model; return why not."""
    import onnx.version_converter

    try:
        made = onnx.version_converter.convert_version(model, target)
    except Exception as error:  # the converter raises what its C++ does
        return {"opset": f"onnx's version converter refuses: {told(error)}"}
    named = {value.name for value in (*model.graph.input, *model.graph.output)}
    if named != {value.name for value in (*made.graph.input, *made.graph.output)}:
        return {"opset": "onnx's version converter renames inputs or outputs"}
    take_nodes(model, made)
    return {}


PASS = Pass("opset", "Sentis documents a window of opsets", ("OPSET.WINDOW",), run)
