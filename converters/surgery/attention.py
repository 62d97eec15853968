"""Finding attention in a decoder's graph: queries, keys, values, and what is added to the scores.

The graph is one of onnx-graphsurgeon. Attention is a Softmax between two products: Softmax(f(Q · Kᵀ)) · V, where f
scales, masks and casts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weights_bridge.errors import StageError

ELEMENTWISE = {"Add", "Where", "Mul", "Div", "Sub", "Cast", "Identity", "Max", "Min", "Clip"}
CARRIED = {"Cast", "Identity", "Dropout"}
REPEATED = {"Expand", "Tile"}  # of grouped keys: Unsqueeze, Expand, Reshape


@dataclass(frozen=True)
class Mask:
    """How scores are masked.

    Attributes:
        node: Add or Where.
        scores: position of the scores among its inputs.
        tensor: what is added, or the condition.
        turned: whether the condition is true where a token may not look.
    """

    node: Any
    scores: int
    tensor: Any
    turned: bool = False


@dataclass(frozen=True)
class Attention:
    """One layer's attention.

    Attributes:
        softmax: the node.
        product: Q · Kᵀ.
        weighted: the product with V.
        key: [B, K, T, D], or [B, K, D, T] where `key_turned`.
        key_turned: whether the keys come without a Transpose of their own.
        value: [B, K, T, D].
        mask: how the scores are masked.
        repeats: (Expand, Reshape) that repeat grouped keys and values for each query head.
    """

    softmax: Any
    product: Any
    weighted: Any
    key: Any
    key_turned: bool
    value: Any
    mask: Mask
    repeats: tuple[tuple[Any, Any], ...] = ()


def attentions(graph: Any) -> list[Attention]:
    """Return the attention of every layer in running order.

    Raises:
        StageError: none is there, or one has a form that is not known, with its node.
    """
    found = [
        _attention(node, weighted) for node in graph.nodes if node.op == "Softmax" if (weighted := _weighted(node))
    ]
    if not found:
        hint = "fused attention (com.microsoft, or Attention of opset 23) must be written out first: `mlx-sentis fix`"
        raise StageError("no attention in the graph: no Softmax whose result is multiplied with values", hint=hint)
    return found


def _weighted(softmax: Any) -> Any:
    """Return the product that applies a Softmax to values, None where there is none."""
    value = softmax.outputs[0]
    for _ in range(4):
        readers = value.outputs
        product = next((node for node in readers if node.op == "MatMul" and node.inputs[0] is value), None)
        if product is not None:
            return product
        carried = [node for node in readers if node.op in CARRIED or node.op == "Where"]  # a guard against NaN
        if len(carried) != 1:
            return None
        value = carried[0].outputs[0]
    return None


def _attention(softmax: Any, weighted: Any) -> Attention:
    product, masks = _scores(softmax)
    where = f"attention at {softmax.name or softmax.outputs[0].name!r}"
    if product is None:
        raise StageError(f"{where}: no product of queries and keys in front of its Softmax")
    if len(masks) != 1:
        found = (
            ", ".join(f"{mask.node.op} {mask.node.name or mask.node.outputs[0].name!r}" for mask in masks) or "nothing"
        )
        hint = "scores must be masked once: a bias by distance or no mask at all cannot be fed from outside"
        raise StageError(f"{where}: {found} is added to the scores, wanted one mask", hint=hint)
    key, turned = _without_transpose(product.inputs[1])
    (key, of_key), (value, of_value) = _ungrouped(key), _ungrouped(weighted.inputs[1])
    return Attention(softmax, product, weighted, key, turned, value, masks[0], (*of_key, *of_value))


def _scores(softmax: Any) -> tuple[Any, list[Mask]]:
    """Walk up from a Softmax to Q · Kᵀ and note what masks on the way."""
    masks: list[Mask] = []
    value = softmax.inputs[0]
    while value.inputs:
        node = value.inputs[0]
        if node.op == "MatMul":
            return node, masks
        if node.op not in ELEMENTWISE:
            return None, masks
        towards = [at for at, one in enumerate(node.inputs) if _leads_to_product(one)]
        if len(towards) != 1:
            return None, masks
        at = towards[0]
        if node.op == "Add":
            masks.append(Mask(node, at, node.inputs[1 - at]))
        elif node.op == "Where" and at:
            masks.append(Mask(node, at, node.inputs[0], turned=at == 2))
        value = node.inputs[at]
    return None, masks


def _leads_to_product(value: Any, deepest: int = 12) -> bool:
    """Tell whether element-wise operators lead up to a product of two activations."""
    if not getattr(value, "inputs", None) or not deepest:
        return False
    node = value.inputs[0]
    if node.op == "MatMul":
        return all(getattr(one, "inputs", None) for one in node.inputs)
    return node.op in ELEMENTWISE and any(_leads_to_product(one, deepest - 1) for one in node.inputs)


def _without_transpose(value: Any) -> tuple[Any, bool]:
    """Return keys before their last two axes are swapped; a scale on the way stays behind the cache."""
    current = value
    while current.inputs:
        node = current.inputs[0]
        if node.op == "Transpose":
            perm = list(node.attrs.get("perm") or ())
            if perm[:-2] == list(range(len(perm) - 2)) and perm[-2:] == [len(perm) - 1, len(perm) - 2]:
                return node.inputs[0], False
            return value, True
        if node.op in CARRIED or (node.op in ("Mul", "Div") and _is_scalar(node.inputs[1])):
            current = node.inputs[0]
            continue
        return value, True
    return value, True


def _is_scalar(value: Any) -> bool:
    numbers = getattr(value, "values", None)
    return isinstance(numbers, np.ndarray) and numbers.size == 1


def _ungrouped(value: Any) -> tuple[Any, tuple[tuple[Any, Any], ...]]:
    """Return grouped keys or values before they are repeated for each query head, and the nodes that do it."""
    steps = list(_up(value))
    operators = [node.op for node in steps]
    if operators[:1] == ["Reshape"] and operators[1:2] and operators[1] in REPEATED and operators[2:3] == ["Unsqueeze"]:
        return steps[2].inputs[0], ((steps[1], steps[0]),)
    return value, ()


def _up(value: Any) -> Iterator[Any]:
    for _ in range(3):
        if not value.inputs:
            return
        yield (node := value.inputs[0])
        value = node.inputs[0]
