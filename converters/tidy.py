"""Bringing a traced piece into the form a person would write for Sentis. Works on onnx-ir graphs.

Every rule keeps the numbers: broadcasting, operand order of a product, `1/x` for `Reciprocal(x)`, signs and scales
moved to what is computed once (`rotary`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.rotary import scale_into_rotary, signs_into_sine

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
                fresh = _like(turned, f"{name}:transpose")
                graph.inputs.append(fresh)
                found[f"{name}:transpose"] = (name, "transpose")
                turned.replace_all_uses_with(fresh)
                graph.remove(node, safe=True)
    return found


def _like(value: Any, name: str) -> Any:
    import onnx_ir

    return onnx_ir.Value(name=name, shape=value.shape, type=value.type)


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


def constant(graph: Any, array: np.ndarray) -> Any:
    """Add an initialiser with a name of its own and return its value."""
    import onnx_ir

    tensor: Any = onnx_ir.tensor(np.ascontiguousarray(array).reshape(array.shape))
    name = f"constant.{len(graph.initializers)}"
    while name in graph.initializers:
        name += "x"
    value = onnx_ir.Value(name=name, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor)
    graph.initializers[name] = value
    return value


def shorten_expand_shapes(graph: Any) -> int:
    """Replace the computed shape of an Expand by constants: a 1 keeps a size, so nothing needs to be measured.

    Fires only where each output size is either the input's (same number or same symbol) or a number that
    broadcasts a 1. What it frees (Shape, Squeeze, Add, Concat) is removed as unused.
    """
    changed = 0
    for node in [node for node in graph if node.op_type == "Expand"]:
        source, target = node.inputs[0].shape, node.outputs[0].shape
        if source is None or target is None or len(source) != len(target):
            continue
        pairs = list(zip(source, target, strict=True))
        if all(_same_size(a, b) or (a == 1 and isinstance(b, int)) for a, b in pairs):
            sizes = [1 if _same_size(a, b) else b for a, b in pairs]
            node.replace_input_with(1, constant(graph, np.array(sizes, np.int64)))
            changed += 1
    return changed


def _same_size(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a.value is not None and a.value == b.value


def constant_reshape_shapes(graph: Any) -> int:
    """Replace the computed shape of a Reshape by constants: 0 keeps a size, -1 stands for the one that is not known.

    Fires only where at most one output size is neither a number nor the input's own at the same place.
    """
    changed = 0
    for node in [node for node in graph if node.op_type == "Reshape"]:
        source, target = node.inputs[0].shape, node.outputs[0].shape
        if node.inputs[1].const_value is not None or source is None or target is None or 0 in list(target):
            continue
        sizes = [_asked_size(source[at] if at < len(source) else None, size) for at, size in enumerate(target)]
        if sizes.count(-1) <= 1:
            node.replace_input_with(1, constant(graph, np.array(sizes, np.int64)))
            node.attributes.pop("allowzero", None)
            changed += 1
    return changed


def _asked_size(before: Any, after: Any) -> int:
    if isinstance(after, int):
        return after
    return 0 if before is not None and _same_size(before, after) else -1


def cubes_to_products(graph: Any) -> int:
    """Write `Pow(x, 3)` as x · x · x: no power of a negative number on a GPU, no chain that becomes GeluFast."""
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Pow"]:
        exponent = node.inputs[1].const_value
        if exponent is None or exponent.size != 1 or exponent.numpy().item() != 3:
            continue
        base, old = node.inputs[0], node.outputs[0]
        square = onnx_ir.Node("", "Mul", [base, base], outputs=[_like(old, f"{old.name}.square")])
        cube = onnx_ir.Node("", "Mul", [square.outputs[0], base], outputs=[_like(old, old.name)])
        graph.insert_before(node, [square, cube])
        old.replace_all_uses_with(cube.outputs[0], replace_graph_outputs=True)
        graph.remove(node, safe=True)
        changed += 1
    return changed


def reciprocals_to_quotients(graph: Any) -> int:
    """Write `Reciprocal(Sqrt(x))` as `Div(1, Sqrt(x))`: the form Sentis fuses to RMSNorm; its own form it misses."""
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Reciprocal"]:
        producer = node.inputs[0].producer()
        if producer is None or producer.op_type != "Sqrt":
            continue
        one = constant(graph, np.array(1.0, np.float32))
        made = onnx_ir.Node("", "Div", [one, node.inputs[0]], outputs=[_like(node.outputs[0], node.outputs[0].name)])
        graph.insert_before(node, made)
        node.outputs[0].replace_all_uses_with(made.outputs[0], replace_graph_outputs=True)
        graph.remove(node, safe=True)
        changed += 1
    return changed


def scales_first(graph: Any, weights: set[str]) -> int:
    """Put a norm's scale first in `Mul(normalised, scale)`: Sentis matches operands by position."""
    changed = 0
    for node in [node for node in graph if node.op_type == "Mul"]:
        left, right = node.inputs
        inner = left.producer()
        is_normalised = inner is not None and inner.op_type == "Mul" and _is_quotient(inner.inputs[1])
        if is_normalised and _from_weights(right, weights):
            node.replace_input_with(0, right)
            node.replace_input_with(1, left)
            changed += 1
    return changed


def _is_quotient(value: Any) -> bool:
    producer = value.producer()
    return producer is not None and producer.op_type == "Div"


def _from_weights(value: Any, weights: set[str]) -> bool:
    """Tell whether a value depends on weights and constants only."""
    if value.name in weights or value.is_initializer():
        return True
    producer = value.producer()
    return producer is not None and all(v is not None and _from_weights(v, weights) for v in producer.inputs)


def reshapes_without_allowzero(graph: Any) -> None:
    """Drop `allowzero` where the constant shape has no zero: it changes nothing there."""
    for node in graph:
        shape = node.inputs[1].const_value if node.op_type == "Reshape" else None
        if shape is not None and 0 not in shape.numpy():
            node.attributes.pop("allowzero", None)


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
