"""Resize and Upsample: sizes become float32 scales, coordinates are j·(1/scale) + bias, all in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws, Unknown
from weights_bridge.compare import Array

KNOWN_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
F = np.float32


@dataclass(frozen=True)
class How:
    """How pixels are found.

    Attributes:
        linear: linear, else nearest.
        coordinates: of `KNOWN_COORDINATES`.
        rounding: of nearest.
        label: of the node, for messages.
        divides: j / scale as ONNX Runtime computes it, to find out where ties part.
    """

    linear: bool
    coordinates: str
    rounding: str
    label: str
    divides: bool = False


@form(
    "Resize",
    says="out = floor(dim·float32(size/dim)), c = j·(1/scale) + bias; no antialias; cubic is nearest",
)
def resize(n: Node) -> None:
    n.floats()
    if n.opset < 11:
        _write(n, How(n.attributes.get("mode") == "linear", "asymmetric", "floor", n.label), n.x(1), "")
        return
    if len(n.inputs) < 3:
        raise Throws(f"Resize {n.label!r}: fewer than three inputs end in an index error")
    coordinates = str(n.attributes.get("coordinate_transformation_mode", "half_pixel"))
    coordinates = coordinates if coordinates in KNOWN_COORDINATES else "half_pixel"
    rounding = str(n.attributes.get("nearest_mode", "round_prefer_floor"))
    how = How(n.attributes.get("mode") == "linear", coordinates, rounding, n.label)
    scales = n.x(2)
    sizes = n.x(3)
    if scales and sizes and (held := n.value(2)) is not None and not held.size:
        scales = ""  # older files give both, the unused one empty
    _write(n, how, "" if sizes else scales, sizes)


@form("Upsample", says="as Resize with asymmetric coordinates, rounded down", where="importer")
def upsample(n: Node) -> None:
    n.floats()
    given = n.attributes.get("scales")
    scales = n.graph.const(list(given)) if given is not None else n.x(1)
    if not scales:
        raise Throws(f"Upsample {n.label!r}: scales must be given")
    _write(n, How(n.attributes.get("mode") in ("linear", "bilinear"), "asymmetric", "floor", n.label), scales, "")


def _write(n: Node, how: How, scales: str, sizes: str) -> None:
    given_axes = n.attributes.get("axes")
    axes = None if given_axes is None else [int(axis) for axis in given_axes]
    g = n.graph
    tied = g.name()

    def run(x: Array, given: Array | None, wanted: Array | None) -> list[Array]:
        found = resized(x, given, wanted, axes, how)
        divided = found if how.linear else resized(x, given, wanted, axes, replace(how, divides=True))
        return [found, np.array(not np.array_equal(found, divided, equal_nan=True))]

    g.numpy(run, [n.x(), scales, sizes], [n.y(), tied], ["float", "bool"])
    n.deviates_if(tied, "RESIZE.NEAREST_TIES")


def resized(x: Array, scales: Array | None, sizes: Array | None, axes: list[int] | None, how: How) -> Array:
    """Return a resized array, one axis after the other.

    Raises:
        Unknown: an output size depends on whether the run time keeps a product in float32 or in double.
    """
    factors = [F(1.0)] * x.ndim
    if sizes is not None:
        chosen = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
        for axis, size in zip(chosen, sizes.reshape(-1), strict=True):
            factors[axis] = F(size) / F(x.shape[axis])
    elif scales is not None:  # axes do not count here: scales are taken from axis 0 on
        for axis, scale in enumerate(scales.reshape(-1)):
            factors[axis] = F(scale)
    outs = [_out(size, factor, how.label) for size, factor in zip(x.shape, factors, strict=True)]
    if _replicates(x, factors, how):
        for axis, factor in enumerate(factors):
            x = np.repeat(x, int(factor), axis)
        return x
    for axis, (factor, out) in enumerate(zip(factors, outs, strict=True)):
        x = _along(x, axis, factor, out, how)
    return x


def _out(size: int, factor: np.float32, label: str) -> int:
    single, double = math.floor(F(size) * factor), math.floor(float(size) * float(factor))
    if single != double:
        raise Unknown(
            f"Resize {label!r}: {size}·{factor} is {single} in float32, {double} in double; which, is not known"
        )
    return single


def _replicates(x: Array, factors: list[np.float32], how: How) -> bool:
    """Tell whether the CPU takes its short cut: rank 4, nearest, whole scales, rounding to the nearer pixel.

    It ignores align_corners. Asymmetric coordinates do not take it: the figures of ties that are known for them
    (`round_prefer_floor` parts from ONNX Runtime at the scales 14, 26, 28 and 30 only) are those of the formula.
    """
    if how.coordinates == "asymmetric":
        return False
    whole = all(factor == int(factor) and factor >= 1 for factor in factors)
    kept = factors[0] == 1 and factors[1] == 1 if x.ndim == 4 else False
    return x.ndim == 4 and not how.linear and whole and kept and how.rounding.startswith("round_prefer")


def coordinates(size: int, factor: np.float32, out: int, how: How) -> Array:
    """Return c = j·A + B in float32 for every output position."""
    a, b = F(1.0) / factor, F(0.0)
    if how.coordinates == "align_corners":
        a = F(size - 1) / F(out - 1) if out > 1 else F(0.0)
    elif how.coordinates != "asymmetric":
        b = F(0.5) / factor - F(0.5)
    if how.coordinates in ("align_corners", "pytorch_half_pixel") and out <= 1:
        a = b = F(0.0)
    if not how.linear and how.rounding == "round_prefer_ceil":
        b = b + F(0.5)
    elif not how.linear and how.rounding == "round_prefer_floor":
        b = b - F(0.5)
    at = np.arange(out, dtype=F)
    if how.divides and how.coordinates != "align_corners":
        half = F(0.0) if how.coordinates == "asymmetric" else F(0.5)
        rest = (
            F(0.5)
            if how.rounding == "round_prefer_ceil"
            else F(-0.5)
            if how.rounding == "round_prefer_floor"
            else F(0.0)
        )
        return (at + half) / factor - half + rest
    return at * a + b


def _along(x: Array, axis: int, factor: np.float32, out: int, how: How) -> Array:
    size = x.shape[axis]
    if factor == 1 and out == size:
        return x
    at = coordinates(size, factor, out, how)
    if not how.linear:
        rounded = np.ceil(at) if how.rounding in ("round_prefer_floor", "ceil") else np.floor(at)
        return np.take(x, np.clip(np.maximum(rounded, 0), 0, size - 1).astype(int), axis)
    at = np.maximum(at, F(0.0))
    low = np.minimum(np.floor(at), size - 1).astype(int)
    high = np.minimum(low + 1, size - 1)
    shape = [1] * x.ndim
    shape[axis] = -1
    weight = (at - np.floor(at)).astype(F).reshape(shape)
    below, above = np.take(x, low, axis), np.take(x, high, axis)
    return below + (above - below) * weight
