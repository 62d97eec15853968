"""Doc strings, metadata and inner shapes out of the file.

Why: Sentis reads none of it, and an exporter's stack traces can outweigh the graph. Leaves `value_info` of a model
with subgraphs or local functions alone: there it may be the only type a checker has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from converters.passes.base import Context, Outcome, Pass

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Clear what no reader of numbers needs."""
    outcome = Outcome()
    graph = model.graph
    things: list[Any] = [model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer]
    for thing in things:
        had = bool(thing.doc_string) + bool(len(thing.metadata_props))
        thing.ClearField("doc_string")
        thing.ClearField("metadata_props")
        outcome.changed += had
    nested = any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute)
    if nested or model.functions:
        if graph.value_info:
            outcome.left["value_info"] = "the model has subgraphs or functions, whose types may depend on it"
    else:
        outcome.changed += len(graph.value_info)
        graph.ClearField("value_info")
    return outcome


PASS = Pass("drop_metadata", "Sentis reads no doc strings, metadata or inner shapes", (), run)
