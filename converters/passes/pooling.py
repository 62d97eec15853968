"""AveragePool and MaxPool with ceil_mode, count_include_pad or dilations.

Why: Sentis ignores these attributes: outputs come out smaller, borders are averaged over fewer numbers, windows lie
dense. ceil_mode becomes padding at the end, which neither operator counts; count_include_pad becomes a Pad node; a
dilated pool becomes one Slice per place of its window. Does not fire where sizes that decide are not known, nor where
Indices are read.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

MOST_SLICES = 128  # places of a dilated window, each a node


@dataclass
class Window:
    """The spatial geometry of a pool, one entry per spatial axis.

    Attributes:
        sizes: of the input, None where not known.
        kernel, strides, dilations, begin, end: attributes; begin and end are the padding.
    """

    sizes: list[int | None]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]

    def spans(self) -> list[int]:
        """Return how far each window reaches."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]

    def out(self, axis: int) -> int:
        """Return the output's size on an axis of a known input."""
        free = (self.sizes[axis] or 0) + self.begin[axis] + self.end[axis] - self.spans()[axis]
        return free // self.strides[axis] + 1


def write(place: Place, emit: Emit) -> None:
    """Write the pool with padding that Sentis reads."""
    node, op = place.node, place.node.op_type
    if any(place.view.is_wanted(name) for name in node.output[1:]):
        raise Refusal("its Indices are read")
    window, data = window_of(place), place.name(0)
    counts_padding = bool(place.attributes.get("count_include_pad", 0)) and op == "AveragePool"
    dense = all(dilation == 1 for dilation in window.dilations)
    overhang = (
        [_overhang(window, axis) for axis in range(len(window.end))] if place.attributes.get("ceil_mode", 0) else []
    )
    if counts_padding and any(window.begin + window.end):
        data = emit.padded(data, [0, 0, *window.begin, 0, 0, *window.end], 0.0)
        sums = zip(window.sizes, window.begin, window.end, strict=True)
        window.sizes = [None if size is None else size + begin + end for size, begin, end in sums]
        window.begin, window.end = [0] * len(window.begin), [0] * len(window.end)
    if overhang:
        window.end = [end + more for end, more in zip(window.end, overhang, strict=True)]
    if not dense:
        _dilated(emit, op, data, window, node.output[0])
        return
    padding = [*window.begin, *window.end] if any(window.begin + window.end) else None
    emit(op, data, to=node.output[0], kernel_shape=window.kernel, strides=window.strides, pads=padding)


def window_of(place: Place) -> Window:
    kernel = list(place.attributes.get("kernel_shape") or [])
    count = len(kernel)
    shape = place.shape(0)
    if not kernel or (shape is not None and len(shape) != count + 2):
        raise Refusal("kernel_shape and the rank do not fit")
    sizes: list[int | None] = list(shape[2:]) if shape is not None else [None] * count
    pads = list(place.attributes.get("pads") or [0] * 2 * count)
    strides = list(place.attributes.get("strides") or [1] * count)
    dilations = list(place.attributes.get("dilations") or [1] * count)
    window = Window(sizes, kernel, strides, dilations, pads[:count], pads[count:])
    auto = place.attributes.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        _same(window, lower=auto.endswith("LOWER"))
    elif auto == "VALID":
        window.begin, window.end = [0] * count, [0] * count
    return window


def _same(window: Window, *, lower: bool) -> None:
    for axis, (size, stride, span) in enumerate(zip(window.sizes, window.strides, window.spans(), strict=True)):
        if size is None:
            raise Refusal("auto_pad needs sizes, which are not known")
        total = max(0, (math.ceil(size / stride) - 1) * stride + span - size)
        small = total // 2
        window.begin[axis], window.end[axis] = (total - small, small) if lower else (small, total - small)


def _overhang(window: Window, axis: int) -> int:
    """Return the padding at an axis' end that gives ceil_mode's window.

    Raises:
        Refusal: it depends on a size that is not known.
    """
    size, stride, span = window.sizes[axis], window.strides[axis], window.spans()[axis]
    if size is None:
        if stride != 1 and span < window.end[axis] + stride:
            raise Refusal(f"spatial axis {axis}: whether a last window starts in the padding depends on its size")
        return stride - 1
    free = size + window.begin[axis] + window.end[axis] - span
    last = math.ceil(free / stride) * stride  # where the last window starts
    if free % stride == 0 or last >= size + window.begin[axis]:
        return 0
    return last - free


def _dilated(emit: Emit, op: str, data: str, window: Window, to: str) -> None:
    """Write a dilated pool as the largest, or the mean, of slices."""
    if math.prod(window.kernel) > MOST_SLICES:
        raise Refusal(f"a dilated window of {math.prod(window.kernel)} places would be as many nodes")
    if None in window.sizes:
        raise Refusal("a dilated window needs sizes, which are not known")
    outs = [window.out(axis) for axis in range(len(window.kernel))]
    if any(window.begin + window.end):
        lowest = float(np.finfo(emit.dtype(data)).min) if op == "MaxPool" else 0.0
        data = emit.padded(data, [0, 0, *window.begin, 0, 0, *window.end], lowest)
    axes = [axis + 2 for axis in range(len(outs))]
    parts = []
    for offsets in itertools.product(*(range(size) for size in window.kernel)):
        starts = [offset * dilation for offset, dilation in zip(offsets, window.dilations, strict=True)]
        spans = ((out - 1) * stride + 1 for out, stride in zip(outs, window.strides, strict=True))
        ends = [start + span for start, span in zip(starts, spans, strict=True)]
        parts.append(emit.sliced(data, starts, ends, axes, window.strides))
    if op == "MaxPool":
        emit("Max", *parts, to=to)
        return
    shares = 1 / _counts(window, outs)
    emit("Mul", emit("Sum", *parts) if len(parts) > 1 else parts[0], emit.array(shares.astype(emit.dtype(data))), to=to)


def _counts(window: Window, outs: list[int]) -> np.ndarray:
    """Return how many places of each window lie inside the input, [out, …]."""
    counts = np.ones((), np.float64)
    for axis, out in enumerate(outs):
        starts = np.arange(out)[:, None] * window.strides[axis]
        places = starts + np.arange(window.kernel[axis]) * window.dilations[axis] - window.begin[axis]
        inside = ((places >= 0) & (places < (window.sizes[axis] or 0))).sum(axis=1)
        counts = counts[..., None] * inside
    return counts


RULES = ("AVGPOOL.CEIL", "MAXPOOL.CEIL", "AVGPOOL.COUNT_INCLUDE_PAD", "AVGPOOL.DILATION", "MAXPOOL.DILATION")
PASS = node_pass("pooling", "Sentis ignores ceil_mode, count_include_pad and dilations of pools", write, mends=RULES)
