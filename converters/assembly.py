"""Putting a model together from traced pieces: the layer graph once per layer, with that layer's names.

Nodes that read the same values with the same attributes are written once, so what every layer computes alike
(`Unsqueeze` of cos and sin) ends up beside the prelude.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

    from converters.tracing import Fragment

PRODUCER = "mlx-sentis"


@dataclass
class Assembly:
    """A graph under construction.

    Attributes:
        dynamic_batch: write Reshape shapes so that they keep axis 0 instead of fixing it to 1.
        weights: initialiser name to (torch name, transform), in order of first use.
        shapes: initialiser name to dims.
    """

    dynamic_batch: bool = False
    weights: dict[str, tuple[str, str]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    _constants: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    _tensors: list[onnx.TensorProto] = field(default_factory=list)
    _seen: dict[tuple[Any, ...], list[str]] = field(default_factory=dict)

    def weight(self, torch_name: str, transform: str, torch_shape: tuple[int, ...]) -> str:
        """Declare a weight and return its initialiser's name, the torch name."""
        self.weights[torch_name] = (torch_name, transform)
        self.shapes[torch_name] = torch_shape[::-1] if transform == "transpose" else torch_shape
        return torch_name

    def constant(self, array: np.ndarray) -> str:
        """Return the name of an initialiser with these numbers; equal ones are stored once."""
        import onnx

        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"constant.{len(self._constants)}"
            self._tensors.append(onnx.numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def node(self, op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        """Add a node made here."""
        import onnx

        return self.add(onnx.helper.make_node(op_type, inputs, outputs, **attributes), keep=set(outputs))

    def add(self, node: onnx.NodeProto, keep: set[str]) -> list[str]:
        """Add a node, or return the outputs of an equal one that is there already.

        Args:
            node: with final names.
            keep: names that must exist under themselves (graph outputs).
        """
        attributes = tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute))
        key = (node.op_type, tuple(node.input), attributes, len(node.output))
        if key in self._seen and not keep & set(node.output):
            return self._seen[key]
        self._seen.setdefault(key, list(node.output))
        self.nodes.append(node)
        return list(node.output)

    def instantiate(
        self,
        fragment: Fragment,
        prefix: str,
        bound: Mapping[str, str],
        shapes: Mapping[str, tuple[int, ...]],
        rename: tuple[str, str] = ("", ""),
        outputs: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Copy a traced piece into the graph.

        Args:
            fragment: the piece.
            prefix: put before every inner name.
            bound: the piece's input name to a name in this graph.
            shapes: torch name to torch shape of every weight of the model.
            rename: (start of weight names in the piece, what stands for it in the model).
            outputs: the piece's output name to the name it must have in this graph.

        Returns:
            The names of the piece's outputs in this graph.
        """
        names, fixed = dict(bound), dict(outputs or {})
        for local, (torch_name, transform) in fragment.weights.items():
            real = rename[1] + torch_name.removeprefix(rename[0])
            names[local] = self.weight(real, transform, shapes[real])
        constants = _arrays(fragment)
        reshapes = {node.input[1] for node in fragment.graph.node if node.op_type == "Reshape"}
        for name, array in constants.items():
            names[name] = self.constant(self._batch_kept(array) if name in reshapes else array)
        for source in fragment.graph.node:
            node = type(source)()
            node.CopyFrom(source)
            node.ClearField("name")
            node.input[:] = [names[name] if name else "" for name in source.input]
            node.output[:] = [fixed.get(name, prefix + name) for name in source.output]
            node.name = node.output[0]
            written = self.add(node, set(fixed.values()))
            names |= dict(zip(source.output, written, strict=True))
        return [names[value.name] for value in fragment.graph.output]

    def _batch_kept(self, shape: np.ndarray) -> np.ndarray:
        """Traced at one row, every Reshape keeps axis 0: a 0 there says so for any number of rows."""
        if not self.dynamic_batch or shape[0] != 1:
            return shape
        return np.concatenate([[0], shape[1:]]).astype(np.int64)

    def model(
        self, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], opset: int, ir_version: int
    ) -> onnx.ModelProto:
        """Return the model; weights are declared, without data, after the constants."""
        import onnx

        graph = onnx.helper.make_graph(
            self.nodes, "model", [_value(i) for i in inputs], [_value(o) for o in outputs], self._tensors
        )
        for name, dims in self.shapes.items():
            graph.initializer.add(name=name, dims=dims, data_type=onnx.TensorProto.FLOAT)
        opsets = [onnx.helper.make_opsetid("", opset)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name=PRODUCER)


def _arrays(fragment: Fragment) -> dict[str, np.ndarray]:
    import onnx

    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in fragment.graph.initializer}


def _value(entry: dict[str, Any]) -> onnx.ValueInfoProto:
    import onnx

    kinds = {"int64": onnx.TensorProto.INT64, "float32": onnx.TensorProto.FLOAT}
    return onnx.helper.make_tensor_value_info(entry["name"], kinds[entry["dtype"]], entry["shape"])
