"""Operators that ONNX defines by other operators, replaced by that definition.

Why: Sentis does not import them (Attention, RotaryEmbedding, CenterCropPad, …). The bodies are onnx's own, chosen by
its inliner for the types and attributes of each node. Does not fire where a body itself holds an operator that Sentis
does not import, where onnx has no body for the model's opset, or where types are not known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from converters.passes.base import OPERATOR_FINDINGS, Context, Outcome, Pass
from converters.passes.light import light_model, take_nodes, told

if TYPE_CHECKING:
    import onnx

    from converters.facts import Facts

OPERATORS = (
    "Attention", "RotaryEmbedding", "CenterCropPad", "SwiGLU", "SoftmaxCrossEntropyLoss",
    "NegativeLogLikelihoodLoss", "LinearAttention", "CausalConvWithState", "Swish",
)  # fmt: skip
LOOPS = {"Loop", "Scan"}


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Replace one kind of operator after another."""
    outcome, known = Outcome(), context.known
    for op in OPERATORS:
        count = sum(node.op_type == op and node.domain in ("", "ai.onnx") for node in model.graph.node)
        if op in known.operators or not count or not context.room():
            continue
        if why := _inlined(model, context, op, known):
            outcome.left[op] = why
            continue
        outcome.changed += count
        outcome.places.append(f"{op} ({count} nodes)")
        context.spend(0)
        context.forget()
    return outcome


def _inlined(model: onnx.ModelProto, context: Context, op: str, known: Facts) -> str:
    """Replace all nodes of one operator; return why not, empty when it is done."""
    import onnx.inliner

    light = light_model(model, context.view(model))
    for node in light.graph.node:
        if node.domain == "ai.onnx":
            node.domain = ""
    try:
        made = onnx.inliner.inline_selected_functions(light, [("", op)], inline_schema_functions=True)
    except Exception as error:  # the inliner raises what its C++ does
        return f"onnx's inliner refuses: {told(error)}"
    counts = Counter(node.op_type for node in made.graph.node)
    if counts[op]:
        return "onnx defines no body for this opset and these types"
    before = Counter(node.op_type for node in model.graph.node)
    foreign = sorted(name for name in counts - before if name not in known.operators and name not in OPERATORS)
    if foreign and set(foreign) <= LOOPS and _of_known_sizes(model, context, op):
        foreign = []  # unroll goes on from here
    if foreign:
        return f"its body holds {', '.join(foreign)}, which Sentis does not import"
    take_nodes(model, made)
    return ""


def _of_known_sizes(model: onnx.ModelProto, context: Context, op: str) -> bool:
    """Tell whether the inputs of all nodes of an operator have known sizes, so that a loop over them has as well."""
    view = context.view(model)
    shapes = [view.shape(name) for node in model.graph.node if node.op_type == op for name in node.input if name]
    return all(shape is not None and None not in shape for shape in shapes)


PASS = Pass(
    "function_bodies", "Sentis does not import some operators that ONNX defines by others", OPERATOR_FINDINGS, run,
    operators=OPERATORS,
)  # fmt: skip
