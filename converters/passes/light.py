"""Letting onnx's own tools work on a model without its weights, and taking over what they made of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.scan.inference import light_copy
from converters.scan.view import View

if TYPE_CHECKING:
    import onnx


def light_model(model: onnx.ModelProto, view: View | None = None) -> onnx.ModelProto:
    """Return a copy without the data of large initialisers.

    Args:
        model: the model.
        view: gives types and shapes of inner tensors as `value_info`, which function bodies are chosen by.
    """
    import onnx

    copy = light_copy(model)
    copy.opset_import.MergeFrom(model.opset_import)
    copy.functions.MergeFrom(model.functions)
    if view is not None:
        del copy.graph.value_info[:]
        outside = {value.name for value in (*copy.graph.input, *copy.graph.output)}
        for name, element in view.types.items():
            if element and name not in outside:
                copy.graph.value_info.append(onnx.helper.make_tensor_value_info(name, element, view.dims.get(name)))
        copy.graph.value_info.add()  # the inliner asks for the type of inputs that are not given, by their empty name
    return copy


def take_nodes(model: onnx.ModelProto, made: onnx.ModelProto) -> None:
    """Take nodes, functions and opsets of a light copy that a tool rewrote; initialisers stay, new ones are added."""
    held = {tensor.name for tensor in model.graph.initializer}
    del model.graph.node[:]
    model.graph.node.MergeFrom(made.graph.node)
    model.graph.initializer.extend(tensor for tensor in made.graph.initializer if tensor.name not in held)
    del model.functions[:]
    model.functions.MergeFrom(made.functions)
    del model.opset_import[:]
    model.opset_import.MergeFrom(made.opset_import)
    model.ir_version = max(model.ir_version, made.ir_version)


def told(error: Exception) -> str:
    """Return what an exception of onnx's C++ says, without its place in the sources."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.rpartition("failed: ")[2][:200]
