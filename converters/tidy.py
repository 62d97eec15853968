"""Bringing a traced piece into the form a person would write for Sentis. Works on onnx-ir graphs.

Every rule keeps the numbers: broadcasting, operand order of a product, `1/x` for `Reciprocal(x)`, signs and scales
moved to what is computed once (`rotary`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.ir_values import constant, like
from converters.rotary import scale_into_rotary, signs_into_sine
from converters.tidy_forms import cubes_to_products, reciprocals_to_quotients, scales_first, tanh_gelus_written_out
from converters.tidy_shapes import constant_reshape_shapes, reshapes_without_allowzero, shorten_expand_shapes

INT32_MAX = 2**31 - 1


def tidy(model: Any, weight_names: list[str]) -> dict[str, tuple[str, str]]:
    """Tidy an onnx-ir model in place.

    Args:
        model: an `onnx_ir.Model` as the exporter left it, not optimised.
        weight_names: the module's parameters.

    Returns:
        Graph input to (parameter, `same` or `transpose`) for each weight the graph uses.
    """
    import onnxscript.optimizer

    graph = model.graph
    weights = weights_to_inputs(graph, weight_names)
    onnxscript.optimizer.optimize(model)
    constants_to_initialisers(graph)
    shorten_expand_shapes(graph)
    constant_reshape_shapes(graph)
    signs_into_sine(graph)
    scale_into_rotary(graph)
    tanh_gelus_written_out(graph)
    cubes_to_products(graph)
    reciprocals_to_quotients(graph)
    scales_first(graph, set(weights))
    reshapes_without_allowzero(graph)
    clamp_constants(graph)
    remove_unused(model)
    forget_metadata(model)
    used = {value.name for value in graph.inputs if value.name in weights and (value.uses() or value in graph.outputs)}
    for value in [value for value in graph.inputs if value.name in weights and value.name not in used]:
        graph.inputs.remove(value)
    return {name: entry for name, entry in weights.items() if name in used}


def weights_to_inputs(graph: Any, names: list[str]) -> dict[str, tuple[str, str]]:
    """Turn parameters into inputs, and each `Transpose(parameter)` into an input of its own."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        value = graph.initializers.pop(name, None)
        if value is None:
            continue
        value.const_value = None
        graph.inputs.append(value)
        found[name] = (name, "same")
        for node in [usage.node for usage in value.uses()]:
            if node.op_type == "Transpose" and list(node.attributes["perm"].as_ints()) == [1, 0]:
                turned = node.outputs[0]
                fresh = like(turned, f"{name}:transpose")
                graph.inputs.append(fresh)
                found[f"{name}:transpose"] = (name, "transpose")
                turned.replace_all_uses_with(fresh)
                graph.remove(node, safe=True)
    return found


def constants_to_initialisers(graph: Any) -> None:
    """Store the tensors of Constant nodes as initialisers: one place to look for numbers."""
    for node in [node for node in graph if node.op_type == "Constant"]:
        old = node.outputs[0]
        tensor = old.const_value if old.const_value is not None else _constant_of(node)
        fresh = constant(graph, tensor.numpy())
        old.replace_all_uses_with(fresh)
        graph.remove(node, safe=True)


def _constant_of(node: Any) -> Any:
    import onnx_ir

    (attribute,) = node.attributes.values()
    if attribute.name == "value":
        return attribute.value
    kind = np.int64 if "int" in attribute.name else np.float32
    return onnx_ir.tensor(np.array(attribute.value, kind))


def clamp_constants(graph: Any) -> int:
    """Bring int64 constants into int32, the only integer Sentis has; slice ends stay `to the end`."""
    import onnx_ir

    changed = 0
    for value in graph.initializers.values():
        array = value.const_value.numpy()
        if (
            array.dtype == np.int64
            and (clamped := np.clip(array, -INT32_MAX - 1, INT32_MAX)).tolist() != array.tolist()
        ):
            value.const_value = onnx_ir.tensor(clamped)
            changed += 1
    return changed


def remove_unused(model: Any) -> None:
    """Drop nodes and initialisers that lead to no output."""
    import onnx_ir.passes.common as passes

    passes.RemoveUnusedNodesPass()(model)
    passes.IdentityEliminationPass()(model)
    for name in [name for name, value in model.graph.initializers.items() if not value.uses()]:
        del model.graph.initializers[name]


def forget_metadata(model: Any) -> None:
    """Drop doc strings, metadata and inner shapes: they are larger than the graph itself."""
    for thing in (model, model.graph, *model.graph):
        thing.metadata_props.clear()
        thing.doc_string = None
    for node in model.graph:
        for value in node.outputs:
            value.metadata_props.clear()
            if not value.is_graph_output():
                value.shape = value.type = None
