"""If whose condition is known before the graph runs: its branch in its place.

Why: Sentis imports no control flow. Exporters write an If where a size decides (squeeze, reflect padding), and models
hold one per sample rate: with fixed shapes, or with that input bound to a number, the condition is a constant. Does
not fire on a condition that depends on the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes.base import Context, Outcome, Pass
from converters.passes.fold import Folder, sharpened
from converters.passes.rewrite import drop_unread, names_of
from converters.scan.graphs import graphs_in
from converters.scan.model import opset_of
from converters.scan.operators import label_of

if TYPE_CHECKING:
    import onnx

SWEEPS = 500  # one If a sweep, nested ones after those around them


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Replace one If after another until every condition that is left depends on the inputs."""
    outcome = Outcome()
    for _ in range(SWEEPS):
        outcome.left = {}
        found = _next(model, context, outcome)
        if found is None or not context.room():
            break
        index, taken = found
        outcome.changed += 1
        outcome.places.append(f"If {label_of(model.graph.node[index])}: {taken}")
        _select(model.graph, index, taken)
        context.spend(0)
        context.forget()
    return outcome


def _next(model: onnx.ModelProto, context: Context, outcome: Outcome) -> tuple[int, str] | None:
    """Return the first If with a known condition: its place and the attribute of the branch it takes."""
    if not any(node.op_type == "If" for node in model.graph.node):
        return None
    opset = opset_of(model)
    folder = Folder(sharpened(model, context.known, opset), opset)
    for index, node in enumerate(model.graph.node):
        if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
            continue
        value = folder.value(node.input[0])
        if value is None or value.size != 1:
            outcome.left[label_of(node)] = "its condition depends on the inputs; fix their shapes, or bind one (--bind)"
            continue
        return index, "then_branch" if value.reshape(()) else "else_branch"
    return None


def _select(graph: onnx.GraphProto, index: int, taken: str) -> None:
    import onnx

    node = graph.node[index]
    branch = next(attribute.g for attribute in node.attribute if attribute.name == taken)
    renamed = _fresh_names(branch, _outside(graph, index))
    for inner, outer in zip(branch.output, node.output, strict=False):
        if (
            outer
            and any(inner.name in made.output for made in branch.node)
            and renamed.get(inner.name) not in node.output
        ):
            renamed[inner.name] = outer
    nodes = [copied(inner, renamed) for inner in branch.node]
    for inner, outer in zip(branch.output, node.output, strict=False):
        source = renamed.get(inner.name, inner.name)
        if outer and source != outer:
            nodes.append(onnx.helper.make_node("Identity", [source], [outer], f"{outer}/select_branch"))
    for tensor in branch.initializer:
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = renamed.get(tensor.name, tensor.name)
    condition = node.input[0]
    kept = [copied(other, {}) for other in graph.node]
    kept[index : index + 1] = nodes
    del graph.node[:]
    graph.node.extend(kept)
    drop_unread(graph, {condition})


def _outside(graph: onnx.GraphProto, index: int) -> set[str]:
    """Return the names in a graph but for those inside of one node's branches."""
    names = {value.name for value in (*graph.input, *graph.output)} | {tensor.name for tensor in graph.initializer}
    for position, node in enumerate(graph.node):
        names.update((node.name, *node.input, *node.output))
        if position != index:
            for attribute in node.attribute:
                for inner in graphs_in(attribute):
                    names |= names_of(inner)
    return names


def _fresh_names(branch: onnx.GraphProto, used: set[str]) -> dict[str, str]:
    """Return new names for what a branch makes and the graph around it already has."""
    own = [tensor.name for tensor in branch.initializer]
    own += [name for node in branch.node for name in (*node.output, node.name) if name]
    renamed = {}
    for name in dict.fromkeys(own):
        fresh, number = name, 0
        while fresh in used:
            number += 1
            fresh = f"{name}_{number}"
        used.add(fresh)
        renamed[name] = fresh
    return renamed


def copied(node: onnx.NodeProto, renamed: dict[str, str]) -> onnx.NodeProto:
    """Return a copy with other names, in the bodies of its attributes too."""
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    if renamed:
        _rename(copy, renamed)
    return copy


def _rename(node: onnx.NodeProto, renamed: dict[str, str]) -> None:
    node.input[:] = [renamed.get(name, name) for name in node.input]
    node.output[:] = [renamed.get(name, name) for name in node.output]
    node.name = renamed.get(node.name, node.name)
    for attribute in node.attribute:
        for graph in graphs_in(attribute):
            for inner in graph.node:
                _rename(inner, renamed)
            for value in graph.output:
                value.name = renamed.get(value.name, value.name)


PASS = Pass("select_branch", "Sentis imports no control flow", ("CONTROL_FLOW",), run, operators=("If",))
