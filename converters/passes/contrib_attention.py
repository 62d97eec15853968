"""ONNX Runtime's Attention and MultiHeadAttention written with MatMul and Softmax.

Why: Sentis imports none. Shapes: B rows, S queries, T keys, N heads, H the size of a head. Does not fire on packed
inputs, masks of other forms than [B, T], [B, S, T] and [B, N, S, T], rotary embeddings inside, and causal masks over
lengths that are not known.
"""

from __future__ import annotations

import math

import numpy as np

from converters.passes.emit import FLOAT, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

FILTER = -10000.0  # the operators' own mask_filter_value


def write(place: Place, emit: Emit) -> None:
    """Write queries, keys and values by head, the product with masks, and the output."""
    if place.node.op_type == "Attention":
        _attention(place, emit)
    else:
        _multi_head(place, emit)


def _attention(place: Place, emit: Emit) -> None:
    given, outputs = place.attributes, [*place.node.output, "", ""]
    if given.get("do_rotary", 0) or place.name(6) or given.get("past_present_share_buffer", 0):
        raise Refusal("rotary embedding or a shared cache inside")
    weights = place.shape(1)
    if weights is None or weights[-1] is None:
        raise Refusal("the shape of its weights is not known")
    sizes = list(given.get("qkv_hidden_sizes") or [weights[-1] // 3] * 3)
    product = emit("MatMul", place.name(0), place.name(1))
    product = emit("Add", product, place.name(2)) if place.name(2) else product
    heads = int(given["num_heads"])
    query, key, value = (_by_head(emit, part, heads) for part in emit.split(product, sizes, axis=-1))
    if place.name(4):
        past = [emit("Gather", place.name(4), emit.array(np.array(i)), axis=0) for i in (0, 1)]
        key, value = (emit("Concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    if outputs[1]:
        emit("Concat", emit.unsqueezed(key, [0]), emit.unsqueezed(value, [0]), to=outputs[1], axis=0)
    length = (place.shape(0) or (None, None))[1]
    lengths = (length, None if place.name(4) else length)
    masks = (place.name(3), place.name(5))
    _attended(place, emit, (query, key, value), sizes[0] // heads, masks, lengths, outputs[0])


def _multi_head(place: Place, emit: Emit) -> None:
    given, outputs = place.attributes, [*place.node.output, "", "", ""]
    if any(place.name(position) for position in (8, 9)) or outputs[3]:
        raise Refusal("a shared cache, or its scores as an output")
    heads, shapes = int(given["num_heads"]), [place.shape(position) for position in range(3)]
    if shapes[0] is None or len(shapes[0]) != 3 or shapes[0][2] is None or not (place.name(1) and place.name(2)):
        raise Refusal("queries, keys and values are packed, or their shapes are not known")
    names = [place.name(position) for position in range(3)]
    if place.name(3):
        names = _biased(place, emit, names, shapes)
    parts = []
    for name, shape in zip(names, shapes, strict=True):
        if shape is None or len(shape) not in (3, 4):
            raise Refusal("queries, keys and values are packed, or their shapes are not known")
        parts.append(name if len(shape) == 4 else _by_head(emit, name, heads))
    query, key, value = parts
    if place.name(6) and place.name(7):
        key = emit("Concat", place.name(6), key, to=outputs[1], axis=2)
        value = emit("Concat", place.name(7), value, to=outputs[2], axis=2)
    else:
        for made, output in ((key, outputs[1]), (value, outputs[2])):
            if output:
                emit("Identity", made, to=output)
    keys = shapes[1] or (None, None)
    lengths = (shapes[0][1], None if place.name(6) else keys[1 if len(keys) == 3 else 2])
    masks = (place.name(4), place.name(5))
    _attended(place, emit, (query, key, value), shapes[0][2] // heads, masks, lengths, outputs[0])


def _biased(place: Place, emit: Emit, names: list[str], shapes: list[tuple[int | None, ...] | None]) -> list[str]:
    """Return queries, keys and values with their part of the joint bias."""
    widths = [shape[2] if shape is not None and len(shape) == 3 else None for shape in shapes]
    if None in widths:
        raise Refusal("widths behind the bias are not known")
    biases = emit.split(place.name(3), [width or 0 for width in widths], axis=0)
    return [emit("Add", name, bias) for name, bias in zip(names, biases, strict=True)]


def _by_head(emit: Emit, name: str, heads: int) -> str:
    return emit("Transpose", emit.reshaped(name, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _attended(
    place: Place, emit: Emit, parts: tuple[str, str, str], size: int, masks: tuple[str, str],
    lengths: tuple[int | None, int | None], to: str,
) -> None:  # fmt: skip
    query, key, value = parts
    scale = place.attributes.get("scale", 0.0) or 1 / math.sqrt(size)
    scores = emit("MatMul", query, emit("Transpose", key, perm=[0, 1, 3, 2]))
    scores = emit("Mul", scores, emit.number(scale, place.name(0)))
    if masks[0]:
        scores = emit("Add", scores, _padding_mask(place, emit, masks[0]))
    if masks[1]:
        scores = emit("Add", scores, masks[1])
    if place.attributes.get("unidirectional", 0):
        scores = emit("Add", scores, _causal_mask(place, emit, lengths))
    mixed = emit("MatMul", emit("Softmax", scores, axis=-1), value)
    emit.reshaped(emit("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, -1], to=to)


def _padding_mask(place: Place, emit: Emit, mask: str) -> str:
    """Return 0 where a key may be seen and the filter value where it may not, [B, 1, 1 or S, T]."""
    shape = place.view.shape(mask)
    if shape is None or len(shape) not in (2, 3) or place.view.type(mask) == FLOAT:
        raise Refusal("its mask has another form than [B, T] or [B, S, T]")
    x = place.name(0)
    seen = emit.cast(mask, emit.element(x))
    hidden = emit("Sub", emit.number(1, x), seen)
    filtered = emit("Mul", hidden, emit.number(place.attributes.get("mask_filter_value", FILTER), x))
    return emit.unsqueezed(filtered, [1, 2] if len(shape) == 2 else [1])


def _causal_mask(place: Place, emit: Emit, lengths: tuple[int | None, int | None]) -> str:
    queries, keys = lengths
    if queries is None or keys is None:
        raise Refusal("it is causal, and its lengths are not known")
    dtype = emit.dtype(place.name(0))
    later = np.triu(np.ones((queries, keys), bool), k=1 + keys - queries)
    return emit.array(np.where(later, np.finfo(dtype).min, 0).astype(dtype))


PASS = node_pass(
    "contrib_attention", "Sentis imports no attention operator", write,
    operators=["com.microsoft::Attention", "com.microsoft::MultiHeadAttention"],
)  # fmt: skip
