"""Norms, pools and the like that Sentis lacks, with operators that it imports.

Why: it imports no MeanVarianceNormalization, LpNormalization, LpPool, GlobalLpPool, EyeLike and ReverseSequence. Does
not fire where sizes that decide are not known, on powers other than 1 and 2 of a norm, and on reversed sequences
whose lengths differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


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
    kernel = given.get("kernel_shape") or []
    if given.pop("ceil_mode", 0) or any(one != 1 for one in given.pop("dilations", [1])) or rank is None:
        raise Refusal("it has ceil_mode or dilations, or its rank is not known")
    pads = given.pop("pads", [0] * 2 * len(kernel))
    if given.get("auto_pad", "NOTSET") != "NOTSET":
        raise Refusal("its padding depends on sizes")
    powers = emit("Pow", emit("Abs", x), emit.number(p, x))
    if any(pads):
        half = len(kernel)
        powers = emit.padded(powers, [0, 0, *pads[:half], 0, 0, *pads[half:]], 0.0)
    mean = emit("AveragePool", powers, **given)
    total = emit("Mul", mean, emit.number(math.prod(kernel), x))
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
    time = int(place.attributes.get("time_axis", 0))
    size = shape[time] if shape else None
    if lengths is None or size is None or bool((lengths != size).any()):
        raise Refusal("its lengths are not all the axis' own")
    emit.sliced(place.name(0), [-1], [-(2**31)], [time], [-1], to=to)


WRITERS: dict[str, Callable[[Place, Emit, str], None]] = {
    "LpNormalization": _lp_normalization, "LpPool": _lp_pool, "GlobalLpPool": _global_lp_pool,
    "MeanVarianceNormalization": _mean_variance, "EyeLike": _eye_like, "ReverseSequence": _reverse_sequence,
}  # fmt: skip
PASS = node_pass("norms_and_pools", "Sentis imports no Lp norms and pools", write, operators=WRITERS)
