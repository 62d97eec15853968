"""ONNX Runtime's RotaryEmbedding written with Split, Mul, Add and Concat.

Why: Sentis imports none. Does not fire on packed batches, and where the size of a head is not known.
"""

from __future__ import annotations

from converters.passes.emit import INT64, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the rotation of [B, S, N·D] or [B, N, S, D]."""
    given, rank = place.attributes, place.rank(0)
    if given.get("is_packed_batching", 0) or rank not in (3, 4) or given.get("scale", 1.0) != 1.0:
        raise Refusal("packed batches, a scale, or a rank that is not known")
    cache = place.shape(2)
    if cache is None or len(cache) != 2 or not cache[1]:
        raise Refusal("the shape of the cosines is not known")
    half, size = cache[1], _head_size(place, rank, cache[1])
    x = place.name(0) if rank == 4 else emit.reshaped(place.name(0), [0, 0, -1, size])
    cosine, sine = (_angles(place, emit, place.name(p), 1 if rank == 4 else 2) for p in (2, 3))
    whole = rotated(emit, x, (cosine, sine), (half, size), interleaved=bool(given.get("interleaved", 0)))
    if rank == 4:
        emit("Identity", whole, to=place.node.output[0])
    else:
        emit.shaped_like(whole, place.name(0), to=place.node.output[0])


def _head_size(place: Place, rank: int, half: int) -> int:
    shape = place.shape(0) or (None,)
    width, heads = shape[-1], place.attributes.get("num_heads", 0)
    if rank == 4 and width is None:
        raise Refusal("the size of a head is not known")
    if rank == 4 and width is not None:
        return width
    if not place.attributes.get("rotary_embedding_dim", 0):
        return 2 * half
    if not heads or width is None or width % heads:
        raise Refusal("the size of a head is not known")
    return width // heads


def _angles(place: Place, emit: Emit, cache: str, heads_axis: int) -> str:
    """Return the cosines or sines of the positions, with an axis for the heads."""
    positions = place.name(1)
    if place.rank(1) == 2:
        return emit.unsqueezed(emit("Gather", cache, positions, axis=0), [heads_axis])
    shape = place.shape(0) or ()
    length = shape[1 if heads_axis == 2 else 2]
    if place.rank(1) != 1 or length is None or place.view.type(positions) != INT64:
        raise Refusal("its positions are one offset, and the length is not known")
    places = emit("Add", emit.ints(*range(length)), positions)
    return emit.unsqueezed(emit("Gather", cache, places, axis=0), [0, heads_axis])


def rotated(emit: Emit, x: str, angles: tuple[str, str], sizes: tuple[int, int], *, interleaved: bool) -> str:
    """Return x turned by cosines and sines.

    Args:
        emit: takes the nodes.
        x: rank 4, heads on its last axis.
        angles: cosines and sines, broadcastable to half of what is turned.
        sizes: half of what is turned, and the size of a head; what lies behind the turned part stays.
        interleaved: whether neighbours are the two parts of a complex number, not halves.
    """
    half, size = sizes
    parts = emit.split(x, [2 * half, size - 2 * half] if size > 2 * half else [size], axis=-1)
    turned = _turned(emit, parts[0], *angles, half, interleaved=interleaved)
    return emit("Concat", turned, parts[1], axis=-1) if len(parts) > 1 else turned


def _turned(emit: Emit, x: str, cosine: str, sine: str, half: int, *, interleaved: bool) -> str:
    if interleaved:
        pairs = emit.split(emit.reshaped(x, [0, 0, 0, half, 2]), [1, 1], axis=-1)
        first, second = (emit.squeezed(part, [-1] if emit.place.opset >= 11 else [4]) for part in pairs)
    else:
        first, second = emit.split(x, [half, half], axis=-1)
    real = emit("Sub", emit("Mul", first, cosine), emit("Mul", second, sine))
    imaginary = emit("Add", emit("Mul", first, sine), emit("Mul", second, cosine))
    if not interleaved:
        return emit("Concat", real, imaginary, axis=-1)
    both = emit("Concat", emit.unsqueezed(real, [4]), emit.unsqueezed(imaginary, [4]), axis=-1)
    return emit.reshaped(both, [0, 0, 0, 2 * half])


PASS = node_pass(
    "contrib_rotary", "Sentis imports no rotary embedding", write, operators=["com.microsoft::RotaryEmbedding"]
)
