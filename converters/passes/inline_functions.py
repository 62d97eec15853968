"""Functions of the file put where they are called.

Why: Sentis does not read a file's functions. onnx's inliner does the work; a function of another opset is converted
to the model's. Does not fire where that conversion, or the model's calls, are not sound, nor where the two opsets give
one node different meanings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes.base import Context, Outcome, Pass
from converters.passes.light import light_model, take_nodes, told
from converters.scan.model import opset_of

if TYPE_CHECKING:
    import onnx

REDEFINED = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "BatchNormalization": 14}  # the same node, other numbers


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Inline every function that is called, and drop the others."""
    import onnx.inliner

    from converters.scan.graphs import nodes_within

    if not model.functions:
        return Outcome()
    if (why := _two_meanings(model)) is not None:
        return Outcome(0, {"functions": why})
    named = {(function.domain, function.name) for function in model.functions}
    _take_opset(model)
    calls = sum((node.domain, node.op_type) in named for node in nodes_within(model.graph))
    try:
        light = onnx.shape_inference.infer_shapes(light_model(model))  # versions are converted by type
        made = onnx.inliner.inline_local_functions(light, convert_version=True)
    except Exception as error:  # the inliner raises what its C++ does
        return Outcome(0, {"functions": f"onnx's inliner refuses: {told(error)}"})
    take_nodes(model, made)
    del model.functions[:]
    return Outcome(max(calls, 1))


def _two_meanings(model: onnx.ModelProto) -> str | None:
    """Name a function whose opset gives an operator another meaning than the model's opset gives the same node.

    ONNX forbids the mix; ONNX Runtime and onnx's evaluator read such a node as the model's opset has it.
    """
    target = opset_of(model)
    for function in model.functions:
        opsets = [entry.version for entry in function.opset_import if entry.domain in ("", "ai.onnx")]
        for node in function.node:
            since = REDEFINED.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            if since and any((opset < since) != (target < since) for opset in opsets):
                return f"{node.op_type} means one thing in {function.name}'s opset {opsets[0]}, another in {target}"
    return None


def _take_opset(model: onnx.ModelProto) -> None:
    """Give functions the model's opset where all of their operators mean the same in both.

    onnx's converter knows no types inside of functions that call each other, and then gives up.
    """
    import onnx

    target = opset_of(model)
    for function in model.functions:
        for entry in function.opset_import:
            if entry.domain not in ("", "ai.onnx") or entry.version == target:
                continue
            names = {node.op_type for node in function.node if node.domain in ("", "ai.onnx")}
            try:
                since = [
                    {name: onnx.defs.get_schema(name, opset, "").since_version for name in names}
                    for opset in (entry.version, target)
                ]
            except onnx.defs.SchemaError:
                continue
            if since[0] == since[1]:
                entry.version = target


PASS = Pass("inline_functions", "Sentis does not read the functions of a file", ("FUNCTION.LOCAL",), run)
