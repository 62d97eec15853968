"""ONNX Runtime's GroupQueryAttention with its cache as a Concat, its mask and its rotary embedding written out.

Why: Sentis imports none; decoders that were made for ONNX Runtime hold one per layer. Shapes: B rows, S queries, P
tokens in the cache, T = P + S keys, N heads of queries, K heads of keys, H the size of a head. A group's queries are
rows of one product with their key head, so that keys are not copied. The written form takes every row as full
(`seqlens_k` = T − 1): rows that are padded behind, and a cache larger than what it holds, need the operator itself; the
proof fails on them. Does not fire on quantised caches, sinks, smooth softmax and scores as outputs.
"""

from __future__ import annotations

import math

import numpy as np

from converters.passes.contrib_rotary import rotated
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

HIDDEN = -1e9
POSITIONS, BIAS = 9, 10  # inputs


def write(place: Place, emit: Emit) -> None:
    """Write one node."""
    given, outputs = place.attributes, [*place.node.output, "", "", ""]
    if given.get("smooth_softmax", 0) or place.positions[-1] > BIAS or outputs[3]:
        raise Refusal("smooth softmax, sinks, a quantised cache, or scores as an output")
    heads, groups = int(given["num_heads"]), int(given["kv_num_heads"])
    parts, size = _by_head(place, emit, heads, groups)
    query, key, value = parts
    length, past = _size(emit, place.name(0), 1), _size(emit, place.name(3), 2) if place.name(3) else ""
    first = past or emit.array(np.array(0, np.int64))
    rows = emit("Range", first, emit("Add", first, length), emit.array(np.array(1, np.int64)))  # positions of queries
    if given.get("do_rotary", 0):
        angles, half = _angles(place, emit, rows)
        between = bool(given.get("rotary_interleaved", 0))
        query, key = (rotated(emit, one, angles, (half, size), interleaved=between) for one in (query, key))
    if past:
        key = emit("Concat", place.name(3), key, to=outputs[1], axis=2)
        value = emit("Concat", place.name(4), value, to=outputs[2], axis=2)
    else:
        named = zip((key, value), outputs[1:3], strict=True)
        key, value = (emit("Identity", one, to=to) if to else one for one, to in named)
    grouped = emit.reshaped(query, [0, groups, -1, size])
    scores = emit("MatMul", grouped, emit("Transpose", key, perm=[0, 1, 3, 2]))
    scale = given.get("scale", 0.0) or 1 / math.sqrt(size)
    scores = emit.reshaped(emit("Mul", scores, emit.number(scale, place.name(0))), [0, heads, -1, 0])
    if cap := given.get("softcap", 0.0):
        bound = emit.number(cap, place.name(0))
        scores = emit("Mul", emit("Tanh", emit("Div", scores, bound)), bound)
    if place.name(BIAS):
        scores = emit("Add", scores, place.name(BIAS))
    scores = emit("Add", scores, _mask(place, emit, rows, emit("Add", first, length)))
    weights = emit.reshaped(emit("Softmax", scores, axis=-1), [0, groups, -1, 0])
    mixed = emit.reshaped(emit("MatMul", weights, value), [0, heads, -1, size])
    emit.reshaped(emit("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, heads * size], to=outputs[0])


def _by_head(place: Place, emit: Emit, heads: int, groups: int) -> tuple[list[str], int]:
    """Return queries [B, N, S, H], keys and values [B, K, S, H], and H."""
    shape = place.shape(0)
    width = shape[-1] if shape is not None and len(shape) == 3 else None
    if width is None:
        raise Refusal("the width of its queries is not known")
    packed = not place.name(1)
    size = width // (heads + 2 * groups) if packed else width // heads
    names = [place.name(position) for position in range(3)]
    if packed:
        names = emit.split(place.name(0), [heads * size, groups * size, groups * size], axis=-1)
    counts = (heads, groups, groups)
    rows = [emit.reshaped(name, [0, 0, count, size]) for name, count in zip(names, counts, strict=True)]
    return [emit("Transpose", row, perm=[0, 2, 1, 3]) for row in rows], size


def _size(emit: Emit, name: str, axis: int) -> str:
    """Return a size of a tensor as a number of rank 0."""
    shape = emit.place.view.shape(name)
    if shape is not None and (known := shape[axis]) is not None:
        return emit.array(np.array(known, np.int64))
    return emit("Gather", emit("Shape", name), emit.array(np.array(axis, np.int64)), axis=0)


def _angles(place: Place, emit: Emit, rows: str) -> tuple[tuple[str, str], int]:
    """Return cosines and sines of the queries' positions, [·, 1, S, half], and half of what is turned."""
    cache = place.shape(7)
    if cache is None or len(cache) != 2 or not cache[1]:
        raise Refusal("the shape of its cosines is not known")
    given = place.name(POSITIONS)
    axes = [1] if given else [0, 1]
    cosine, sine = (
        emit.unsqueezed(emit("Gather", place.name(position), given or rows, axis=0), axes) for position in (7, 8)
    )
    return (cosine, sine), cache[1]


def _mask(place: Place, emit: Emit, rows: str, total: str) -> str:
    """Return 0 where a query sees a key and a large negative number where it does not, [S, T]."""
    dtype = emit.dtype(place.name(0))
    low = emit.array(np.array(max(HIDDEN, float(np.finfo(dtype).min)), dtype))
    zero, one = (emit.array(np.array(number, np.int64)) for number in (0, 1))
    columns, at = emit("Range", zero, total, one), emit.unsqueezed(rows, [1])
    hidden = emit("Greater", columns, at)
    if (window := int(place.attributes.get("local_window_size", -1))) > 0:
        last = emit("Sub", at, emit.array(np.array(window, np.int64)))
        hidden = emit("Or", hidden, emit("Not", emit("Greater", columns, last)))
    return emit("Where", hidden, low, emit.number(0, place.name(0)))


PASS = node_pass(
    "contrib_grouped", "Sentis imports no attention operator", write, operators=["com.microsoft::GroupQueryAttention"],
)  # fmt: skip
