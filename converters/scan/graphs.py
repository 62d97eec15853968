"""Walking graphs: bodies in attributes, what a node reads, an order in which nodes can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def graphs_in(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def nodes_within(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a graph or function, those of the graphs in its attributes included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in graphs_in(attribute):
                yield from nodes_within(inner)


def sorted_order(graph: onnx.GraphProto) -> list[int] | None:
    """Return the nodes' indices so that each comes after those it reads, in the file's order where possible.

    None where there is a cycle.
    """
    waits = _waits(graph)
    readers: dict[int, list[int]] = {}
    for reader, makers in enumerate(waits):
        for maker in makers:
            readers.setdefault(maker, []).append(reader)
    ready = [index for index, makers in enumerate(waits) if not makers]
    order: list[int] = []
    while ready:
        order.append(index := heapq.heappop(ready))
        for reader in readers.get(index, ()):
            waits[reader].discard(index)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order if len(order) == len(waits) else None


def _waits(graph: onnx.GraphProto) -> list[set[int]]:
    """Return for each node the nodes of the same graph it reads, through the graphs in its attributes too."""
    made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    return [{made[name] for name in names_read(node) if name in made} for node in graph.node]


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, and those that graphs in its attributes read from outside."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in graphs_in(attribute):
            own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            yield from (name for inner in graph.node for name in names_read(inner) if name not in own)
