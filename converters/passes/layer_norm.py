"""LayerNormalization without a bias, over several axes, or with its moments as outputs.

Why: Sentis' import fails without a bias, ignores `axis` (always the last) and makes no Mean or InvStdDev. A bias of
zeros is added; several axes are flattened to one, and the result takes its shape back; moments become reductions.
Does not fire where sizes that must be flattened are not known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from converters.passes import forms
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the norm over the last axis, with a bias."""
    node, x, scale, bias = place.node, place.name(0), place.name(1), place.name(2)
    axis, rank = place.attributes.get("axis", -1), place.rank(0)
    if rank is None and axis != -1:
        raise Refusal(f"axis {axis}: the rank of {x!r} is not known")
    first = axis % rank if rank else -1
    epsilon = place.attributes.get("epsilon", 1e-5)
    mean, inverse = [node.output[i] if i < len(node.output) else "" for i in (1, 2)]
    forms.moments(
        emit, x, list(range(first, rank)) if rank else [-1], epsilon, _read(place, mean), _read(place, inverse)
    )
    several = rank is not None and first != rank - 1
    if not several and (place.rank(1) or 1) == 1:
        emit("LayerNormalization", x, scale, bias or forms.zeros_like(emit, scale), to=node.output[0], **_given(place))
        return
    sizes = _sizes(place, first)
    size = math.prod(sizes)
    scale = forms.in_a_row(emit, 1, sizes)
    bias = forms.in_a_row(emit, 2, sizes) if bias else emit.array(np.zeros(size, emit.dtype(place.name(1))))
    if not several:
        emit("LayerNormalization", x, scale, bias, to=node.output[0], **_given(place))
        return
    flat = emit.reshaped(x, [*([0] * first), size])
    normed = emit("LayerNormalization", flat, scale, bias, **_given(place))
    emit.shaped_like(normed, x, to=node.output[0])


def _given(place: Place) -> dict[str, Any]:
    kept = {"epsilon", "stash_type"}
    return {name: value for name, value in place.attributes.items() if name in kept}


def _read(place: Place, name: str) -> str:
    """Return a name that is read or an output of the model, empty for one that nobody wants."""
    return name if place.view.is_wanted(name) else ""


def _sizes(place: Place, first: int) -> list[int]:
    """Return the sizes that are normalised together.

    Raises:
        Refusal: one is not known.
    """
    sizes = (place.shape(0) or ())[first:]
    if not sizes or None in sizes:
        raise Refusal(f"the normalised sizes of {place.name(0)!r} are not known")
    return [size or 0 for size in sizes]


PASS = node_pass(
    "layer_norm", "Sentis needs a bias and normalises the last axis only", write,
    mends=["LAYERNORM.NO_BIAS", "LAYERNORM.AXIS", "LAYERNORM.EXTRA_OUTPUTS"],
)  # fmt: skip
