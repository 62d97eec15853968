"""Rotary embeddings with fewer layers, on onnx-ir graphs of one decoder layer. Both rules keep what is computed.

The traced form turns x by cutting it in two, negating one half and joining them the other way round, for queries and
keys in every layer. The sign can lie in the sine instead, which all layers share; so can the scale of the scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.ir_values import constant

ROTARY = ("cos", "sin")  # graph inputs of a traced layer


def signs_into_sine(graph: Any) -> int:
    """Write `Concat(-x₂, x₁) · sin` as `Concat(x₂, x₁) · (±sin)`, the halves taken with one Split. Exact to the bit.

    Fires where the two Slices are the halves of one axis of known size and only the product with the sine reads them.
    """
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Concat" and len(node.inputs) == 2]:
        halves = _halves(node)
        product = _only_reader(node.outputs[0])
        if halves is None or product is None or product.op_type != "Mul":
            continue
        source, axis, half = halves
        sine = next(value for value in product.inputs if value is not node.outputs[0])
        if not _made_of(sine, set(ROTARY)):
            continue
        name = node.outputs[0].name
        parts = [onnx_ir.Value(name=f"{name}.{part}") for part in ("first", "second")]
        sizes = constant(graph, np.array([half, half], np.int64))
        split = onnx_ir.Node("", "Split", [source, sizes], [onnx_ir.AttrInt64("axis", axis)], outputs=parts)
        joined = onnx_ir.Node(
            "", "Concat", parts[::-1], [onnx_ir.AttrInt64("axis", axis)], outputs=[onnx_ir.Value(name=f"{name}.turned")]
        )
        signs = constant(graph, np.repeat(np.array([-1, 1], np.float32), half))
        signed = onnx_ir.Node("", "Mul", [sine, signs], outputs=[onnx_ir.Value(name=f"{name}.signed")])
        graph.insert_before(product, [split, joined, signed])
        product.replace_input_with(0, joined.outputs[0])
        product.replace_input_with(1, signed.outputs[0])
        changed += 1
    return changed


def _halves(concat: Any) -> tuple[Any, int, int] | None:
    """Return (x, axis, half) of `Concat(-x[half:], x[:half])` along the last axis; None for anything else."""
    negated, first = (value.producer() for value in concat.inputs)
    if negated is None or first is None or negated.op_type != "Neg" or first.op_type != "Slice":
        return None
    second = negated.inputs[0].producer()
    if second is None or second.op_type != "Slice" or second.inputs[0] is not first.inputs[0]:
        return None
    source = first.inputs[0]
    cuts = [_cut(node) for node in (first, second)]
    if source.shape is None or None in cuts:
        return None
    (start, half, axis), (begin, end, other) = (cut for cut in cuts if cut is not None)
    rank = len(source.shape)
    width = source.shape[rank - 1]
    is_last = axis == other and axis in (rank - 1, -1) and concat.attributes["axis"].as_int() in (rank - 1, -1)
    if not is_last or not isinstance(width, int) or (start, begin, 2 * half) != (0, half, width) or end < width:
        return None
    return source, rank - 1, half


def _cut(node: Any) -> tuple[int, int, int] | None:
    """Return start, end and axis of a Slice of one axis by one step."""
    given = [value.const_value for value in node.inputs[1:]]
    if len(given) < 3 or any(one is None or one.size != 1 for one in given):
        return None
    start, end, axis, *step = (int(one.numpy().item()) for one in given)
    return (start, end, axis) if step in ([], [1]) else None


def scale_into_rotary(graph: Any) -> int:
    """Scale cos and sin of the queries, which all layers share, instead of every layer's scores.

    Exact where the scale is a power of two, otherwise another rounding: 1 ulp of a product. Fires where the scores
    are one product, scaled by a number, of queries that are `x · cos + x' · sin`.
    """
    import onnx_ir

    changed = 0
    for node in [node for node in graph if node.op_type == "Mul"]:
        scores, number = node.inputs
        product = scores.producer()
        if number.const_value is None or number.const_value.size != 1 or product is None or product.op_type != "MatMul":
            continue
        turned = _turned(product.inputs[0])
        if turned is None or _only_reader(scores) is not node or node.outputs[0].is_graph_output():
            continue
        for part in turned:
            at = next(at for at, value in enumerate(part.inputs) if _made_of(value, set(ROTARY)))
            scaled = onnx_ir.Value(name=f"{part.outputs[0].name}.scaled")
            graph.insert_before(part, onnx_ir.Node("", "Mul", [part.inputs[at], number], outputs=[scaled]))
            part.replace_input_with(at, scaled)
        node.outputs[0].replace_all_uses_with(scores)
        graph.remove(node, safe=True)
        changed += 1
    return changed


def _turned(value: Any) -> list[Any] | None:
    """Return the two products whose sum the queries are, where nothing else reads what is on the way."""
    while True:
        node = value.producer()
        if node is None or _only_reader(value) is None:
            return None
        if node.op_type != "Reshape":
            break
        value = node.inputs[0]
    parts = [one.producer() for one in node.inputs] if node.op_type == "Add" else []
    if len(parts) != 2 or any(part is None or part.op_type != "Mul" for part in parts):
        return None
    made = [sum(_made_of(value, set(ROTARY)) for value in part.inputs) for part in parts]
    return parts if made == [1, 1] and all(_only_reader(part.outputs[0]) is node for part in parts) else None


def _only_reader(value: Any) -> Any:
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def _made_of(value: Any, names: set[str]) -> bool:
    """Tell whether a value is made of some graph inputs and constants only, and of one of the inputs at least."""
    if value.is_graph_input():
        return value.name in names
    node = value.producer()
    if node is None:
        return False
    given = [one for one in node.inputs if one is not None and one.const_value is None]
    return bool(given) and all(_made_of(one, names) for one in given)
