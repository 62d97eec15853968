"""Norms, pools and the like that Sentis lacks, with operators that it imports.

Why: it imports no MeanVarianceNormalization, LpNormalization, LpPool, GlobalLpPool, EyeLike and ReverseSequence. Does
not fire where sizes that decide are not known, on powers other than 1 and 2 of a norm, and on ceil_mode of LpPool.
Sequences of other lengths than the axis are reversed by GatherND, its indices computed from the lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.pooling import window_of
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

DILATED_FROM = 19  # the opset in which AveragePool got dilations


def write(place: Place, emit: Emit) -> None:
    """Write one operator."""
    WRITERS[place.node.op_type](place, emit, place.node.output[0])


def _lp_normalization(place: Place, emit: Emit, to: str) -> None:
    x, p = place.name(0), int(place.attributes.get("p", 2))
    if p not in (1, 2):
        raise Refusal(f"a norm of power {p}")
    norm = emit.reduced(f"ReduceL{p}", x, [int(place.attributes.get("axis", -1))])
    safe = emit("Where", emit("Equal", norm, emit.number(0, x)), emit.number(1, x), norm)
    emit("Div", x, safe, to=to)  # a row of zeros stays zero


def _global_lp_pool(place: Place, emit: Emit, to: str) -> None:
    rank, p = place.rank(0), int(place.attributes.get("p", 2))
    if rank is None:
        raise Refusal("its rank is not known")
    axes = list(range(2, rank))
    if p in (1, 2):
        emit.reduced(f"ReduceL{p}", place.name(0), axes, to=to)
        return
    powers = emit("Pow", emit("Abs", place.name(0)), emit.number(p, place.name(0)))
    emit("Pow", emit.reduced("ReduceSum", powers, axes), emit.number(1 / p, place.name(0)), to=to)


def _lp_pool(place: Place, emit: Emit, to: str) -> None:
    given, x = dict(place.attributes), place.name(0)
    p, rank = int(given.pop("p", 2)), place.rank(0)
    dilated = any(one != 1 for one in given.get("dilations", [1]))
    if given.get("ceil_mode", 0) or rank is None:
        raise Refusal("it has ceil_mode, or its rank is not known")
    if dilated and place.opset < DILATED_FROM:
        raise Refusal(f"before opset {DILATED_FROM} no average has dilations")
    window = window_of(place)
    powers = emit("Pow", emit("Abs", x), emit.number(p, x))
    if any(window.begin + window.end):
        powers = emit.padded(powers, [0, 0, *window.begin, 0, 0, *window.end], 0.0)
    dilations = window.dilations if dilated else None  # what Sentis ignores; see pooling
    mean = emit("AveragePool", powers, kernel_shape=window.kernel, strides=window.strides, dilations=dilations)
    total = emit("Mul", mean, emit.number(math.prod(window.kernel), x))
    emit("Pow", total, emit.number(1 / p, x), to=to)


def _mean_variance(place: Place, emit: Emit, to: str) -> None:
    """Write the norm from centred numbers; onnx's own body has E[x²] − E[x]², which cancels where means are large."""
    x, axes = place.name(0), list(place.attributes.get("axes") or (0, 2, 3))
    centred = emit("Sub", x, emit.reduced("ReduceMean", x, axes))
    deviation = emit("Sqrt", emit.reduced("ReduceMean", emit("Mul", centred, centred), axes))
    emit("Div", centred, emit("Add", deviation, emit.number(1e-9, x)), to=to)


def _eye_like(place: Place, emit: Emit, to: str) -> None:
    import onnx

    shape = place.shape(0)
    if shape is None or len(shape) != 2 or None in shape:
        raise Refusal("its shape is not known")
    element = int(place.attributes.get("dtype", 0)) or place.view.type(place.name(0))
    if not element:
        raise Refusal("its type is not known")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    rows, columns = (size or 0 for size in shape)
    emit.result(to, np.eye(rows, columns, int(place.attributes.get("k", 0))).astype(dtype))


def _reverse_sequence(place: Place, emit: Emit, to: str) -> None:
    lengths, shape = place.value(1), place.shape(0)
    time, row = int(place.attributes.get("time_axis", 0)), int(place.attributes.get("batch_axis", 1))
    size, rows = (shape[time], shape[row]) if shape is not None and len(shape) > 1 else (None, None)
    if size is None:
        raise Refusal("the size of its axis of time is not known")
    if lengths is not None and bool((lengths == size).all()):
        emit.sliced(place.name(0), [-1], [-(2**31)], [time], [-1], to=to)
        return
    if rows is None:
        raise Refusal("the number of its rows is not known")
    steps, own = np.arange(size)[:, None], np.arange(rows)[None] + np.zeros((size, 1), np.int64)  # [T, B]
    at = emit.array(steps)
    if lengths is not None:
        source = emit.array(np.where(steps < lengths, lengths - 1 - steps, steps).astype(np.int64))
    else:
        count = emit.unsqueezed(place.name(1), [0])
        turned = emit("Sub", emit("Sub", count, emit.array(np.array(1, np.int64))), at)
        source = emit("Where", emit("Less", at, count), turned, at)
    places = [emit.unsqueezed(source, [2]), emit.array(own[..., None])]
    indices = emit("Concat", *(places if time == 0 else places[::-1]), axis=2)
    if time == 1:
        indices = emit("Transpose", indices, perm=[1, 0, 2])
    emit("GatherND", place.name(0), indices, to=to)


WRITERS: dict[str, Callable[[Place, Emit, str], None]] = {
    "LpNormalization": _lp_normalization, "LpPool": _lp_pool, "GlobalLpPool": _global_lp_pool,
    "MeanVarianceNormalization": _mean_variance, "EyeLike": _eye_like, "ReverseSequence": _reverse_sequence,
}  # fmt: skip
PASS = node_pass("norms_and_pools", "Sentis imports no Lp norms and pools", write, operators=WRITERS)
