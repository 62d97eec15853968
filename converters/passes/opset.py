"""The file's opset brought into the window that Sentis documents, under the name that it looks for.

Why: without an opset of the domain '' Sentis takes the file for opset 15; ONNX allows `ai.onnx` for the same domain.
2.4 and 2.5 document opsets 7 to 15, 2.6 documents 7 to 25; below 7 Sentis ignores the axis of old broadcasts. Up, and
down inside what onnx converts, onnx's own version converter is taken; down to 15 is done here, node by node
(`down.py`), because onnx has no way there for reductions with axes as inputs, Split, Pad, LayerNormalization and more.
Does not fire on graphs with bodies; it converts all or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes.base import Context, Outcome, Pass
from converters.passes.down import lowered
from converters.passes.emit import Emit
from converters.passes.light import take_nodes, told
from converters.passes.rewrite import names_of, splice
from converters.scan.graphs import graphs_in
from converters.scan.model import opset_of
from converters.scan.operators import label_of
from converters.scan.view import Place

if TYPE_CHECKING:
    import onnx

LONG_NAME = "ai.onnx"
OLD_BROADCASTS = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
OWN_TARGET = 15  # what `down.py` knows the way to


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Name the domain as Sentis reads it, and convert the model to the nearest opset of the window."""
    named = _named(model) if context.room() else []
    made = _within(model, context)
    return Outcome(made.changed + len(named), made.left, [*named, *made.places])


def _named(model: onnx.ModelProto) -> list[str]:
    """Write the domain `ai.onnx` as an empty text where that is missing; return what was done."""
    if any(entry.domain == "" for entry in model.opset_import):
        return []
    long = [entry for entry in model.opset_import if entry.domain == LONG_NAME]
    for entry in long:
        entry.domain = ""
    return [f"opset {entry.version} of {LONG_NAME!r} to the domain ''" for entry in long]


def _within(model: onnx.ModelProto, context: Context) -> Outcome:
    low, high = context.known["opset_window"]
    opset = opset_of(model)
    if low <= opset <= high or not context.room():
        return Outcome()
    if any(True for node in model.graph.node for attribute in node.attribute for _ in graphs_in(attribute)):
        return Outcome(0, {"opset": "the model has bodies of control flow"})
    if opset > high == OWN_TARGET:
        left = lowered(model, context, opset, high)
    else:
        left = _aligned(model, context, opset) if opset < low else {}
        left = left or _converted(model, low if opset < low else high)
    if left:
        return Outcome(0, left)
    context.spend(0)
    target = low if opset < low else high
    return Outcome(1, {}, [f"opset {opset} to {target}"])


def _aligned(model: onnx.ModelProto, context: Context, opset: int) -> dict[str, str]:
    """Write the axis of old broadcasts as an Unsqueeze of the second operand, which onnx's converter does not."""
    view, taken, replaced = context.view(model), names_of(model.graph), dict[int, Emit]()
    for index, node in enumerate(model.graph.node):
        place = Place(node, view, opset, context.known)
        given = place.attributes
        if node.op_type not in OLD_BROADCASTS or not given.get("broadcast") or "axis" not in given:
            continue
        ranks = place.rank(0), place.rank(1)
        if ranks[0] is None or ranks[1] is None or not ranks[0] or not any(node.output):
            return {label_of(node): f"{node.op_type}: the ranks of an old broadcast are not known"}
        emit, axis = Emit(place, taken, "opset"), given["axis"] % ranks[0]
        behind = range(ranks[1], ranks[0] - axis)
        second = emit.unsqueezed(place.name(1), behind) if behind else place.name(1)
        emit(node.op_type, place.name(0), second, to=node.output[0], broadcast=1)
        replaced[index] = emit
    splice(model.graph, replaced)
    context.forget()
    return {}


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


FINDINGS = ("OPSET.WINDOW", "OPSET.DOMAIN", *(f"{op.upper()}.LEGACY_AXIS" for op in OLD_BROADCASTS))
PASS = Pass("opset", "Sentis documents a window of opsets", FINDINGS, run)
