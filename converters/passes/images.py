"""Operators on pictures that Sentis lacks or computes otherwise, where sizes are known.

Why: it imports no AffineGrid, Col2Im and MaxUnpool, makes no Indices in MaxPool, and clamps a reflection that is as
long as its axis. AffineGrid becomes a product with the base points, Col2Im a ConvTranspose whose kernels hold one 1
each, MaxUnpool a ScatterElements, Indices an ArgMax over the places of the window, and a reflection a Gather for each
axis. Does not fire where sizes are not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from converters.passes.emit import FLOAT, Emit, Refusal
from converters.passes.pooling import window_of
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

MOST_PLACES = 64  # of a window whose Indices are wanted


def write(place: Place, emit: Emit) -> None:
    """Write one operator."""
    WRITERS[place.node.op_type](place, emit, place.node.output[0])


def _affine_grid(place: Place, emit: Emit, to: str) -> None:
    """Write theta [N, d, d + 1] times the base points (x, y, …, 1) of every pixel."""
    size = place.value(1)
    if size is None or size.size not in (4, 5):
        raise Refusal("its size is no constant")
    spatial, align = [int(one) for one in size[2:]], bool(place.attributes.get("align_corners", 0))
    axes = [np.linspace(-1, 1, n) if align else (2 * np.arange(n) + 1) / n - 1 for n in spatial]
    axes = [np.zeros(1) if align and n == 1 else axis for axis, n in zip(axes, spatial, strict=True)]
    points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(spatial)], -1)
    base = emit.array(points.reshape(-1, len(spatial) + 1).astype(emit.dtype(place.name(0))))
    product = emit("MatMul", base, emit("Transpose", place.name(0), perm=[0, 2, 1]))
    emit.reshaped(product, [0, *spatial, len(spatial)], to=to)


def _col2im(place: Place, emit: Emit, to: str) -> None:
    """Write [N, C · places, L] as the sum of its blocks, [N, C, …]."""
    image, block, shape = place.value(1), place.value(2), place.shape(0)
    if image is None or block is None or shape is None or len(shape) != 3 or shape[1] is None:
        raise Refusal("its sizes are no constants, or its channels are not known")
    sizes, kernel = [int(one) for one in image], [int(one) for one in block]
    count, places, given = len(kernel), math.prod(kernel), place.attributes
    dilations, strides = (list(given.get(name) or [1] * count) for name in ("dilations", "strides"))
    pads = list(given.get("pads") or [0] * 2 * count)
    if count > 2:
        raise Refusal("more than two spatial dimensions")
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    free = [size + pads[i] + pads[i + count] - spans[i] for i, size in enumerate(sizes)]
    blocks = [one // stride + 1 for one, stride in zip(free, strides, strict=True)]
    rest = [one % stride for one, stride in zip(free, strides, strict=True)]
    ones = np.eye(places, dtype=emit.dtype(place.name(0))).reshape(places, 1, *kernel)
    rows = emit.reshaped(place.name(0), [-1, places, *blocks])
    made = emit(
        "ConvTranspose", rows, emit.array(ones), strides=strides, dilations=dilations, pads=pads,
        output_padding=rest if any(rest) else None,
    )  # fmt: skip
    emit.reshaped(made, [-1, shape[1] // places, *sizes], to=to)


def _max_unpool(place: Place, emit: Emit, to: str) -> None:
    """Write the values to their flat places among zeros."""
    out, shape = _unpooled(place), place.shape(0)
    if shape is None or None in out:
        raise Refusal("the shape of its output is not known")
    zeros = emit.array(np.zeros(math.prod(size or 0 for size in out), emit.dtype(place.name(0))))
    values, places = (emit.reshaped(place.name(position), [-1]) for position in (0, 1))
    emit.reshaped(emit("ScatterElements", zeros, places, values, axis=0), [size or 0 for size in out], to=to)


def _unpooled(place: Place) -> list[int | None]:
    """Return the shape of a MaxUnpool's output."""
    given, wanted, shape = place.attributes, place.value(2), place.shape(0)
    if place.name(2) and wanted is None:
        return [None]
    if wanted is not None:
        return [int(one) for one in wanted]
    kernel = list(given["kernel_shape"])
    strides, pads = list(given.get("strides") or [1] * len(kernel)), list(given.get("pads") or [0] * 2 * len(kernel))
    sizes = [
        None if size is None else (size - 1) * strides[i] - pads[i] - pads[i + len(kernel)] + kernel[i]
        for i, size in enumerate((shape or ())[2:])
    ]
    return [*(shape or ())[:2], *sizes]


def _max_pool(place: Place, emit: Emit, to: str) -> None:
    """Write a MaxPool without Indices, and these as the flat place of the largest number in each window."""
    window, shape, given = window_of(place), place.shape(0), place.attributes
    count = len(window.kernel)
    if shape is None or None in shape or given.get("storage_order", 0) or given.get("ceil_mode", 0):
        raise Refusal("its shape is not known, or ceil_mode or column order are asked for")
    if math.prod(window.kernel) > MOST_PLACES:
        raise Refusal(f"a window of {math.prod(window.kernel)} places would be as many nodes")
    sizes, x = [size or 0 for size in shape], place.name(0)
    whole = place.kind(0) == "int"  # 8 bits, which floats hold exactly
    lowest = float(np.finfo(np.float32 if whole else emit.dtype(x)).min)
    x = emit.cast(x, FLOAT) if whole else x
    padded = emit.padded(x, [0, 0, *window.begin, 0, 0, *window.end], lowest) if any(window.begin + window.end) else x
    area = math.prod(sizes[2:])
    numbers = np.pad(np.arange(area).reshape(sizes[2:]), list(zip(window.begin, window.end, strict=True)))
    parts, places = [], []
    for offsets in itertools.product(*(range(size) for size in window.kernel)):
        starts = [offset * dilation for offset, dilation in zip(offsets, window.dilations, strict=True)]
        ends = [start + (window.out(i) - 1) * window.strides[i] + 1 for i, start in enumerate(starts)]
        part = emit.sliced(padded, starts, ends, list(range(2, 2 + count)), window.strides)
        parts.append(emit.unsqueezed(part, [2 + count]))
        places.append(numbers[tuple(slice(*bounds) for bounds in zip(starts, ends, window.strides, strict=True))])
    best = emit("ArgMax", emit("Concat", *parts, axis=2 + count), axis=2 + count, keepdims=1)
    if to and whole:
        emit.cast(emit("MaxPool", x, **given), place.view.type(place.name(0)), to=to)
    elif to:
        emit("MaxPool", x, to=to, **given)
    table = np.stack(places, -1)[None, None].astype(np.int64)
    every = emit("Expand", emit.array(table), emit.ints(*sizes[:2], *table.shape[2:]))
    inside = emit.squeezed(emit("GatherElements", every, best, axis=2 + count), [2 + count])
    first = (np.arange(sizes[0] * sizes[1]) * area).reshape(*sizes[:2], *[1] * count)
    emit("Add", inside, emit.array(first), to=place.node.output[1])


def _reflect(place: Place, emit: Emit, to: str) -> None:
    """Write a reflection as a Gather for each axis that is padded."""
    padded_by_gather(place, emit, to)


def padded_by_gather(place: Place, emit: Emit, to: str) -> None:
    """Write a Pad that repeats numbers of the input, in its own mode, as a Gather for each axis that is padded."""
    pads, shape = [int(one) for one in place.sizes(1) or [] if isinstance(one, int | float)], place.shape(0)
    named = place.sizes(3) if place.name(3) else None
    axes = [int(one) for one in named if isinstance(one, int)] if named else list(range(len(shape or ())))
    if not pads or shape is None or len(pads) != 2 * len(axes) or min(pads) < 0:
        raise Refusal("its pads or its rank are not known, or it crops")
    mode = "reflect" if place.attributes.get("mode") == "reflect" else "wrap"
    rows = [(axis % len(shape), pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)]
    rows = [row for row in rows if row[1] or row[2]]
    x = place.name(0)
    if not rows:
        emit("Identity", x, to=to)
    for at, (axis, begin, end) in enumerate(rows):
        size = shape[axis]
        if not size:
            raise Refusal(f"the size of axis {axis} is not known")
        places = np.pad(np.arange(size), (begin, end), mode=mode)
        x = emit("Gather", x, emit.array(places.astype(np.int64)), to=to if at == len(rows) - 1 else "", axis=axis)


WRITERS: dict[str, Callable[[Place, Emit, str], None]] = {
    "AffineGrid": _affine_grid, "Col2Im": _col2im, "MaxUnpool": _max_unpool, "MaxPool": _max_pool, "Pad": _reflect,
}  # fmt: skip
PASS = node_pass(
    "images", "Sentis lacks some operators on pictures", write,
    mends=["PAD.REFLECT_BIG", "MAXPOOL.INDICES"], operators=["AffineGrid", "Col2Im", "MaxUnpool"],
)  # fmt: skip
