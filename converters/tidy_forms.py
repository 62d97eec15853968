"""Forms in a traced piece that Sentis fuses, or computes on every backend: cubes, norms, the place of scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.ir_values import constant, like

TANH_GELU = (0.5, 1.0, 0.044715, (2 / np.pi) ** 0.5)


def cubes_to_products(graph: Any) -> int:
    """Write `Pow(x, 3)` as x · x · x: no power of a negative number on a GPU, no chain that becomes GeluFast."""
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Pow"]:
        exponent = node.inputs[1].const_value
        if exponent is None or exponent.size != 1 or exponent.numpy().item() != 3:
            continue
        base, old = node.inputs[0], node.outputs[0]
        square = onnx_ir.Node("", "Mul", [base, base], outputs=[like(old, f"{old.name}.square")])
        cube = onnx_ir.Node("", "Mul", [square.outputs[0], base], outputs=[like(old, old.name)])
        graph.insert_before(node, [square, cube])
        old.replace_all_uses_with(cube.outputs[0], replace_graph_outputs=True)
        graph.remove(node, safe=True)
        changed += 1
    return changed


def tanh_gelus_written_out(graph: Any) -> int:
    """Write `Gelu(approximate="tanh")`, which the exporter writes from opset 20 on, as it does below that.

    Sentis makes the operator GeluFast, with a clamp and a power.
    """
    changed = 0
    for node in [node for node in graph if node.op_type == "Gelu"]:
        kind = node.attributes.get("approximate")
        if kind is None or kind.as_string() != "tanh":
            continue
        made = _tanh_gelu(graph, node)
        node.outputs[0].replace_all_uses_with(made, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        changed += 1
    return changed


def _tanh_gelu(graph: Any, node: Any) -> Any:
    """Insert x · 0.5 (tanh(√(2/π) (x + 0.044715 x³)) + 1) before a node and return its value, named as the node's.

    The half and the one next to each other are one ScalarMad in Sentis; `(0.5 x) · (… + 1)` is a layer more.
    """
    import onnx_ir

    x, old = node.inputs[0], node.outputs[0]
    half, one, weight, root = (constant(graph, np.array(number, np.float32)) for number in TANH_GELU)

    def step(op: str, left: Any, *right: Any, name: str) -> Any:
        made = onnx_ir.Node("", op, [left, *right], outputs=[like(old, name)])
        graph.insert_before(node, made)
        return made.outputs[0]

    square = step("Mul", x, x, name=f"{old.name}.square")
    cube = step("Mul", square, x, name=f"{old.name}.cube")
    inner = step("Add", x, step("Mul", weight, cube, name=f"{old.name}.weighted"), name=f"{old.name}.inner")
    tanh = step("Tanh", step("Mul", root, inner, name=f"{old.name}.scaled"), name=f"{old.name}.tanh")
    raised = step("Add", tanh, one, name=f"{old.name}.raised")
    return step("Mul", x, step("Mul", half, raised, name=f"{old.name}.halved"), name=old.name)


def reciprocals_to_quotients(graph: Any) -> int:
    """Write `Reciprocal(Sqrt(x))` as `Div(1, Sqrt(x))`: the form Sentis fuses to RMSNorm; its own form it misses."""
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Reciprocal"]:
        producer = node.inputs[0].producer()
        if producer is None or producer.op_type != "Sqrt":
            continue
        one = constant(graph, np.array(1.0, np.float32))
        made = onnx_ir.Node("", "Div", [one, node.inputs[0]], outputs=[like(node.outputs[0], node.outputs[0].name)])
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
