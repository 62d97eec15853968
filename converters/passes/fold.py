"""Numbers that a graph always computes the same: from constants and from sizes that are known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from converters.passes.light import light_model
from converters.scan.graphs import graphs_in
from converters.scan.view import View, view_of
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

    from converters.facts import Facts

MOST_ELEMENTS = 4096  # of a constant that is looked at
ROUNDS = 12
BY_CHANCE = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
BY_CHANCE |= {"Dropout"}


def sharpened(model: onnx.ModelProto, known: Facts, opset: int) -> View:
    """Return a view of a copy in which everything that is always the same is a constant.

    onnx's inference follows few of the sums that sizes go through (padding, slices). Each round computes them, and then
    more sizes are known.
    """
    light = light_model(model)
    for _ in range(ROUNDS):
        view = view_of(light, known, opset)
        folder = Folder(view, opset)
        found = {}
        for node in light.graph.node:
            value = folder.value(node.output[0]) if len(node.output) == 1 and node.op_type != "Constant" else None
            if value is not None:
                found[node.output[0]] = value
        if not found:
            break
        _replace_by_constants(light.graph, found)
    return view_of(light, known, opset)


def _replace_by_constants(graph: onnx.GraphProto, found: dict[str, np.ndarray]) -> None:
    import onnx

    kept = [node for node in graph.node if not found.keys() & set(node.output)]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)
    graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in found.items())
    del graph.value_info[:]


class Folder:
    """Evaluates tensors of one graph in ONNX Runtime, each once."""

    def __init__(self, view: View, opset: int) -> None:
        self.view, self.opset = view, opset
        self._held: dict[str, np.ndarray | None] = {}

    def value(self, name: str) -> np.ndarray | None:
        """Return a tensor's numbers, None where they depend on the inputs."""
        if name not in self._held:
            self._held[name] = None  # a cycle ends here
            self._held[name] = self._value(name)
        return self._held[name]

    def _value(self, name: str) -> np.ndarray | None:
        given = self.view.value(name)
        if given is not None:
            return given if given.size <= MOST_ELEMENTS else None
        node = self.view.maker(name)
        if node is None or node.op_type in BY_CHANCE or node.domain not in ("", "ai.onnx"):
            return None
        if any(True for attribute in node.attribute for _ in graphs_in(attribute)):
            return None
        if (sizes := self._sizes(node)) is not None:
            return sizes
        values = {one: self.value(one) for one in node.input if one}
        if not values or any(value is None for value in values.values()):
            return None
        result = run_node(node, {one: value for one, value in values.items() if value is not None}, name, self.opset)
        return result if result is not None and result.size <= MOST_ELEMENTS else None

    def _sizes(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Return what Shape, Size, or a Gather of a Shape gives where those sizes are known."""
        if node.op_type in ("Shape", "Size"):
            shape = self.view.shape(node.input[0])
            if shape is None:
                return None
            bounds = {attribute.name: attribute.i for attribute in node.attribute}
            picked = shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
            if None in picked:
                return None
            sizes = np.array(picked, np.int64)
            return sizes if node.op_type == "Shape" else np.array(sizes.prod(), np.int64)
        if node.op_type != "Gather":
            return None
        before, index = self.view.maker(node.input[0]), self.value(node.input[1])
        if before is None or before.op_type != "Shape" or before.attribute or index is None:
            return None
        shape = self.view.shape(before.input[0]) or ()
        if index.size == 0 or index.min() < -len(shape) or index.max() >= len(shape):
            return None
        picked = [shape[int(one)] for one in index.reshape(-1)]
        return None if None in picked else np.array(picked, np.int64).reshape(index.shape)


def run_node(node: onnx.NodeProto, values: dict[str, np.ndarray], name: str, opset: int) -> np.ndarray | None:
    """Return an output of a node for given inputs, from ONNX Runtime; None where it does not run."""
    import onnx

    from converters.prove import outputs_of

    held = [onnx.numpy_helper.from_array(value, one) for one, value in values.items()]
    made = onnx.ValueInfoProto(name=name)
    graph = onnx.helper.make_graph([node], "one", [], [made], held)
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    try:
        return outputs_of(model.SerializeToString(), {})[name]
    except StageError:
        return None
