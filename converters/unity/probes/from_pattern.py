"""A graph made of a fusion's pattern in the facts: what the optimiser looks for, to the order of operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from converters.fusions.patterns import Node, parsed

OPSET = 18  # ReduceMean takes its axes as an input, as the pattern writes them
OUTPUT = "out"  # patterns have x, y, a, b, d and t of their own
HELD = {"scale": np.arange(1, 9), "bias": np.arange(1, 9) / 4, "eps": np.array(1e-5)}  # constants, where a name says so
CAST_TO = {"int": TensorProto.INT32, "float": TensorProto.FLOAT}
NOT_ATTRIBUTES = ("noop_with_empty_axes",)  # at its default, which is left out


@dataclass
class _Writer:
    """Writes a pattern's nodes, each once.

    Attributes:
        kind: numpy's type of the pattern's free inputs.
        names: pattern node to value name.
    """

    kind: type[np.number[Any]]
    names: dict[Node, str] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    held: list[onnx.TensorProto] = field(default_factory=list)

    def value(self, node: Node, parent: str = "") -> str:
        if node not in self.names:
            self.names[node] = self._layer(node) if node.op else self._leaf(node, parent)
        return self.names[node]

    def _leaf(self, node: Node, parent: str) -> str:
        if node.name and node.name not in HELD:
            self.inputs.append(node.name)
            return node.name
        name = node.name or f"c{len(self.held)}"
        number = node.number
        if number is None:
            array = HELD[name].astype(np.float32)
        elif parent.startswith("Reduce"):
            array = np.array([number], np.int64)
        else:
            array = np.array(number, self.kind if isinstance(number, int) else np.float32)
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def _layer(self, node: Node) -> str:
        given = [self.value(one, node.op) for one in node.inputs]
        literals = {key: value for key, value in node.literals.items() if key not in NOT_ATTRIBUTES}
        if node.op == "Cast":
            literals["to"] = CAST_TO[literals["to"]]
        if node.op == "NotEqual":
            return self._emit("Not", [self._emit("Equal", given, {})], {})
        return self._emit(node.op, given, literals)

    def _emit(self, op: str, given: list[str], literals: dict[str, Any]) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, given, [name], name, **literals))
        return name


def model_of_pattern(pattern: str) -> onnx.ModelProto:
    """Return a model of a pattern: its free names are inputs [2, 8], its named constants and numbers initialisers."""
    root = parsed(pattern)
    whole = any(isinstance(node.number, int) and not isinstance(node.number, bool) for node in _compared(root))
    writer = _Writer(np.int32 if whole else np.float32)
    last = writer.value(root)
    kind = result = TensorProto.INT32 if whole else TensorProto.FLOAT
    if writer.nodes[-1].op_type == "Not":
        result = TensorProto.BOOL
    graph = helper.make_graph(
        [*writer.nodes, helper.make_node("Identity", [last], [OUTPUT], OUTPUT)],
        "probe",
        [helper.make_tensor_value_info(name, kind, [2, 8]) for name in writer.inputs],
        [helper.make_tensor_value_info(OUTPUT, result, None)],
        writer.held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _compared(root: Node) -> list[Node]:
    """Return the numbers of a pattern that are operands, not axes."""
    axes = {one for node in root.walk() if node.op.startswith("Reduce") for one in node.inputs[1:]}
    return [node for node in root.walk() if not node.op and node not in axes]
