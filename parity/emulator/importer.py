"""From an ONNX file to the graph that stands for what Sentis makes of it.

As the importer does it: nodes are sorted, dispatched by operator name whatever their domain, only the attributes that
it reads are there, and the optimiser's patterns that change numbers are applied.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.facts import Facts
from converters.fusions import contract_patterns
from converters.fusions.importing import imported
from converters.fusions.layers import Layer
from converters.onnx_file import Skeleton, type_name
from converters.scan.graphs import sorted_order
from converters.scan.model import opset_of
from converters.scan.operators import label_of
from converters.scan.view import Place, View, view_of
from parity.emulator.graph import Graph
from parity.emulator.node import Node
from parity.emulator.operators import FORMS, form_of
from parity.emulator.prediction import Throws, Unknown
from parity.emulator.weights import Weights

if TYPE_CHECKING:
    import onnx


CONSTANTS = ("Constant", "ConstantOfShape")
UNFIT = (IndexError, KeyError, ValueError, TypeError, AttributeError, ZeroDivisionError, OverflowError)


@dataclass
class Imported:
    """What the importer makes of a file.

    Attributes:
        graph: what is run.
        unpredicted: output to why it is missing: dropped, or not known.
        inputs: name to (ONNX type, declared sizes).
    """

    graph: Graph
    unpredicted: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, tuple[int, tuple[int | str | None, ...] | None]] = field(default_factory=dict)


def import_model(path: Path, skeleton: Skeleton, known: Facts, found: Mapping[str, frozenset[str]]) -> Imported:
    """Import a file as a version of Sentis does.

    Args:
        path: the file.
        skeleton: what was read of it.
        known: the facts of the version.
        found: label of a node to the ids that the scanner found there.

    Raises:
        Throws: the import fails.
    """
    model = skeleton.model
    opset = opset_of(model)
    view = view_of(model, known, opset)
    graph = Graph()
    made = Imported(graph)
    weights = Weights(path, skeleton, known)
    for name, values in weights.initialisers():
        graph.hold(name, values)
    for value in model.graph.input:
        if value.name in view.inputs:
            _add_input(made, value, view, known)
    order = sorted_order(model.graph)
    if order is None:
        raise Throws("the nodes read each other in a circle")
    walk = _Walk(made, view, known, opset, weights, fused_layers(model, known), found)
    inside = walk.inside_layers()
    for index in order:
        node = model.graph.node[index]
        if not inside.intersection(node.output):
            walk.add(node)
    for value in model.graph.output:
        if value.name in graph.kinds:
            graph.outputs.append(value.name)
        else:
            made.unpredicted.setdefault(value.name, "nothing that Sentis makes has this name: dropped with a warning")
    return made


def _add_input(made: Imported, value: onnx.ValueInfoProto, view: View, known: Facts) -> None:
    element = value.type.tensor_type.elem_type
    kind = known.kind(type_name(element))
    if not kind:
        raise Throws(f"input {value.name!r} of type {type_name(element)}: no such type exists in Sentis")
    made.graph.kinds[value.name] = made.graph.elements[value.name] = kind
    made.inputs[value.name] = (element, view.sizes.get(value.name))


def fused_layers(model: onnx.ModelProto, known: Facts) -> dict[str, tuple[Layer, dict[str, str]]]:
    """Return output to the layer that the optimiser's patterns make of several nodes, and its inputs by name.

    Raises:
        Throws: a pattern that makes the import throw.
    """
    from converters.fusions.patterns import parsed

    layers, unknown = imported(model, known)
    if unknown:  # the import stops before the optimiser
        return {}
    contract_patterns(layers, known)
    if layers.faults:
        raise Throws("; ".join(layers.faults))
    rows = {row["becomes"]: row for row in known["fusions"] if "match" in row}
    found = {}
    for layer in layers.layers:
        if layer.op in rows and len(layer.nodes) > 1:
            row = rows[layer.op]
            names = [
                one.name for one in parsed(row["match"]).walk() if one.name and one.name not in row.get("static", ())
            ]
            found[layer.output] = (layer, dict(zip(names, layer.inputs, strict=True)))
    return found


@dataclass
class _Walk:
    made: Imported
    view: View
    known: Facts
    opset: int
    weights: Weights
    fused: Mapping[str, tuple[Layer, dict[str, str]]]
    found: Mapping[str, frozenset[str]]

    @functools.cached_property
    def operators(self) -> dict[str, str]:
        """Label of a node to its operator."""
        return {label_of(node): node.op_type for node in self.view.graph.node}

    def inside_layers(self) -> set[str]:
        """Return the tensors that exist only inside the layers of several nodes: nothing else reads them."""
        inside: set[str] = set()
        for output, (layer, _) in self.fused.items():
            waiting = list(self.view.makers[output].input)
            while waiting:
                name = waiting.pop()
                maker = self.view.makers.get(name)
                if (
                    maker is not None
                    and name not in layer.inputs
                    and name not in inside
                    and maker.op_type != "Constant"
                ):
                    inside.add(name)
                    waiting += maker.input
        return inside

    def add(self, node: onnx.NodeProto) -> None:
        """Write what stands for one node; an output that cannot be predicted is left out with the reason."""
        graph = self.made.graph
        given = self._node(node)
        for name in filter(None, given.inputs):
            if name in self.made.unpredicted and name not in graph.kinds:
                self._leave(given, self.made.unpredicted[name])
                return
        graph.label, graph.stem = given.label, given.y() or given.label
        for name in filter(None, given.inputs):
            if name in graph.held:
                graph.readers.setdefault(name, []).append((given.op, given.label))
        mark = graph.mark()
        try:
            form_of(given.op)(given)
        except Unknown as reason:
            graph.forget_since(mark)
            self._leave(given, str(reason))
        except UNFIT as error:
            graph.forget_since(mark)
            said = f"its inputs or attributes do not fit its operator ({type(error).__name__}: {error})"
            self._leave(given, f"{given.op} {given.label!r}: {said}")

    def _leave(self, node: Node, reason: str) -> None:
        for name in filter(None, node.outputs):
            self.made.graph.kinds.pop(name, None)
            self.made.unpredicted[name] = reason

    def _node(self, node: onnx.NodeProto) -> Node:
        label = label_of(node)
        first = next((value.name for value in self.view.graph.input if value.name in self.view.inputs), "")
        found = self.found.get(label, frozenset())
        rest = (self.opset, self.made.graph, self.known, self.view.dims, found, first, self.view.types)
        if node.output and node.output[0] in self.fused:
            layer, named = self.fused[node.output[0]]
            attributes = dict(layer.literals) | {"fused": self._operators(layer)}
            return Node(layer.op, label, list(named.values()), list(node.output), attributes, *rest)
        attributes = self._constants(node) if node.op_type in CONSTANTS else self._attributes(node)
        return Node(node.op_type, label, list(node.input), list(node.output), attributes, *rest)

    def _operators(self, layer: Layer) -> tuple[str, ...]:
        """Return the operators of the ONNX nodes that a layer stands for, in the order of the graph."""
        return tuple(self.operators[label] for label in dict.fromkeys(layer.nodes) if label in self.operators)

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """Return what the importer reads at this opset, unknown modes replaced."""
        row = self.known.operators.get(node.op_type, {})
        given = Place(node, self.view, self.opset, self.known).attributes
        reads, modes = row.get("reads", {}), row.get("modes", {})
        kept = {}
        for name, value in given.items():
            how = reads.get(name)
            if how is None or not how.get("from", 0) <= self.opset < how.get("below", self.opset + 1):
                continue
            mode = modes.get(name)
            if mode and not isinstance(value, list) and value not in mode["values"]:
                value = mode["else"]
            kept[name] = value
        return kept

    def _constants(self, node: onnx.NodeProto) -> dict[str, Any]:
        """Return a constant's attributes, its tensor as the importer reads it."""
        given = self._attributes(node)
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                given["value"] = self.weights.of_node(attribute.t, node.output[0])
        return given


def emulated() -> frozenset[str]:
    """Return the operators that have a form."""
    return frozenset(FORMS)
