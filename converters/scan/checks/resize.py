"""Checks about Resize: how sizes become scales, and where its rounding differs.

Coordinates and sizes as Sentis 2.4 computes them: scale = float32(size) / float32(dim), out = floor(dim · scale).
"""

from __future__ import annotations

import math

import numpy as np

from converters.scan.answers import Answer, Found, check
from converters.scan.sizes import Size
from converters.scan.view import Place

HALF_PIXEL, ASYMMETRIC = "half_pixel", "asymmetric"
TIED_ASYMMETRIC = {14, 26, 28, 30}  # whole scales where asymmetric with round_prefer_floor meets ties
TIED_HALF_PIXEL_FLOOR = 19  # the first odd scale where half_pixel with floor does


def _scales(place: Place) -> list[float] | None:
    """Return the scales where all are known, from the second input before opset 11."""
    scales = place.sizes(1 if place.opset < 11 and len(place.node.input) == 2 else 2)
    known = [float(one) for one in scales or [] if isinstance(one, int | float)]
    return known if scales and len(known) == len(scales) else None


def _sizes(place: Place) -> list[Size] | None:
    return place.sizes(3) or None


def _by_sizes(place: Place) -> bool:
    """Tell whether sizes decide, known or not; an empty constant stands for none before opset 13."""
    return bool(place.name(3)) and place.sizes(3) != []


def _axes(place: Place, count: int) -> list[int]:
    axes = place.attributes.get("axes")
    return list(axes) if axes else list(range(count))


def _pairs(place: Place) -> list[tuple[int, float, float]]:
    """Return (axis, dim, size or scale) for each axis of which both are known."""
    given, shape = _sizes(place) or _scales(place), place.shape(0)
    if given is None or shape is None:
        return []
    axes = _axes(place, len(given))
    pairs = zip(axes, given, strict=False)
    known = ((axis, shape[axis], one) for axis, one in pairs if -len(shape) <= axis < len(shape))
    return [(axis, dim, float(one)) for axis, dim, one in known if dim and isinstance(one, int | float)]


def _ratios(place: Place) -> list[float]:
    """Return the scales, computed from sizes where these are given; empty where they are not known."""
    if _by_sizes(place):
        return [size / dim for _, dim, size in _pairs(place)]
    return _scales(place) or []


@check
def sizes_lose_one(place: Place) -> Answer:
    """A size that float32 arithmetic does not reach; some more are missed if the run time kept doubles."""
    if not _by_sizes(place):
        return None
    for axis, dim, size in _pairs(place):
        scale = np.float32(size) / np.float32(dim)
        if math.floor(np.float32(dim) * scale) < size:
            return Found(f"axis {axis}: {dim} to {size:g}")
    for axis, dim, size in _pairs(place):
        if math.floor(float(dim) * float(np.float32(size) / np.float32(dim))) < size:
            return Found(f"axis {axis}: {dim} to {size:g}, if the run time computes in double", sure=False)
    return _unknown_sizes(place)


def _unknown_sizes(place: Place) -> Answer:
    """Say which axis changes its size to one that only a run tells; sizes that are handed on do not change."""
    given, shape = _sizes(place), place.view.sizes.get(place.name(0)) or place.shape(0)
    if given is None or shape is None or len(given) != len(_axes(place, len(given))):
        return Found("its sizes are not known", sure=False)
    for axis, size in zip(_axes(place, len(given)), given, strict=True):
        dim = shape[axis] if -len(shape) <= axis < len(shape) else None
        handed_on = dim == size and dim is not None
        if not handed_on and not (isinstance(dim, int) and isinstance(size, int | float)):
            return Found(f"axis {axis}: its size is not known before it runs", sure=False)
    return None


@check
def scales_round(place: Place) -> Answer:
    """A scale whose result has a fraction of a half or more."""
    if _by_sizes(place) or not _scales(place):
        return None
    for axis, dim, scale in _pairs(place):
        result = dim * scale
        if math.isfinite(result) and result - math.floor(result) >= 0.5:
            return Found(f"axis {axis}: {dim} · {scale:g} = {result:g}")
    return None


@check
def scales_of_some_axes(place: Place) -> Answer:
    """Scales with axes that do not list every axis in order."""
    axes = place.attributes.get("axes")
    if not axes or _by_sizes(place) or not place.name(2):
        return None
    rank = place.rank(0)
    in_order = list(axes) == list(range(len(axes)))
    if in_order and (rank is None or len(axes) == rank):
        return None if rank is not None else Found(f"axes {axes}", sure=False)
    return Found(f"axes {axes}")


@check
def replicates_pixels(place: Place) -> Answer:
    """The CPU's short cut: rank 4, nearest, whole scales, rounding to the nearer pixel, align_corners."""
    mode = place.attributes.get("nearest_mode", "round_prefer_floor")
    wanted = place.attributes.get("coordinate_transformation_mode") == "align_corners"
    if not wanted or not _nearest(place) or not mode.startswith("round_prefer") or place.rank(0) not in (4, None):
        return None
    ratios = _ratios(place)
    if not ratios:
        return Found("scales are not known", sure=False)
    grows = any(ratio > 1 for ratio in ratios) and all(ratio == int(ratio) for ratio in ratios if math.isfinite(ratio))
    return Found(f"scales {_shown(ratios)}", sure=place.rank(0) == 4) if grows else None


@check
def nearest_fraction(place: Place) -> Answer:
    """Nearest with a fractional scale, or with a whole one that is known to meet ties."""
    if not _nearest(place):
        return None
    ratios = _ratios(place)
    if not ratios:
        return None
    if any(math.isfinite(ratio) and ratio != int(ratio) for ratio in ratios):
        return Found(f"scales {_shown(ratios)}")
    old = place.opset < 11
    coordinates = ASYMMETRIC if old else place.attributes.get("coordinate_transformation_mode", HALF_PIXEL)
    rounding = "floor" if old else place.attributes.get("nearest_mode", "round_prefer_floor")
    for ratio in (int(ratio) for ratio in ratios if math.isfinite(ratio)):
        tied = coordinates == ASYMMETRIC and rounding == "round_prefer_floor" and ratio in TIED_ASYMMETRIC
        odd = coordinates == HALF_PIXEL and rounding == "floor" and ratio % 2 and ratio >= TIED_HALF_PIXEL_FLOOR
        if tied or odd:
            return Found(f"scale {ratio} with {coordinates} and {rounding}")
    return None


@check
def shrinks(place: Place) -> Answer:
    """A scale below 1, or one that is not known."""
    ratios = _ratios(place)
    if not ratios:
        return Found(sure=False)
    return Found(f"scales {_shown(ratios)}") if any(ratio < 1 for ratio in ratios) else None


def _nearest(place: Place) -> bool:
    return place.attributes.get("mode", "nearest") == "nearest"


def _shown(ratios: list[float]) -> str:
    return ", ".join(f"{ratio:.4g}" for ratio in ratios[:8])
