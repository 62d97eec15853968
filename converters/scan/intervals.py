"""Between which two numbers a tensor lies, as far as its nodes tell."""

from __future__ import annotations

import math

import numpy as np

from converters.onnx_file import type_name
from converters.scan.answers import CARRIERS, TRUTHS
from converters.scan.schemas import attribute_value
from converters.scan.view import View

Interval = tuple[float, float]
DEEPEST = 12  # nodes followed back
MOST_INPUTS = 8
BOUNDED: dict[str, Interval] = {"Sigmoid": (0, 1), "HardSigmoid": (0, 1), "Softmax": (0, 1), "Tanh": (-1, 1)}
AMONG_FIRST = {"MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "DepthToSpace", "SpaceToDepth", "GatherElements"}
AMONG_ALL = {"Max", "Min", "Concat"}  # each number of the result is one of the inputs' numbers
MEANS = {"AveragePool", "GlobalAveragePool", "ReduceMean"}  # padding may count as zeros
WHOLE = {"Floor", "Ceil", "Round"}
RANGES: dict[str, Interval] = {
    "BOOL": (0, 1), "UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767),
    "UINT32": (0, 2**32 - 1), "INT32": (-(2**31), 2**31 - 1),
}  # fmt: skip


def interval(view: View, name: str) -> Interval | None:
    """Return the lowest and the highest number that a tensor can hold in Sentis, None where nothing is known.

    A tensor's type says something about inputs only: what Sentis computes is an int32 whatever its type says.
    """
    return _of(view, name, 0, {})


def _of(view: View, name: str, depth: int, found: dict[str, Interval | None]) -> Interval | None:
    """Return a tensor's interval; `found` holds those of tensors that were looked at."""
    if name not in found:
        found[name] = None
        found[name] = _made(view, name, depth, found)
    return found[name]


def _made(view: View, name: str, depth: int, found: dict[str, Interval | None]) -> Interval | None:
    value = view.value(name)
    if value is not None:
        known = value.size and value.dtype.kind in "iubf" and bool(np.isfinite(value).all())
        return (float(value.min()), float(value.max())) if known else None
    maker = view.maker(name)
    if maker is None:
        return RANGES.get(type_name(view.type(name)))
    op = maker.op_type
    if op in TRUTHS or op in BOUNDED:
        return BOUNDED.get(op, (0, 1))
    if depth > DEEPEST or not maker.input or len(maker.input) > MOST_INPUTS:
        return None
    sides = [_of(view, one, depth + 1, found) if one else None for one in maker.input]
    if op in CARRIERS or op == "Cast":
        return sides[0] if view.type(maker.input[0]) else None
    given = {attribute.name: attribute_value(op, attribute) for attribute in maker.attribute}
    if op == "Resize":
        within = given.get("mode", "nearest") in ("nearest", "linear") and len(sides) > 2
        cropped = given.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return sides[0] if within and not cropped else None
    if op == "Clip" and len(sides) == 1:  # before opset 11
        sides += [(bound, bound) if bound is not None else None for bound in (given.get("min"), given.get("max"))]
    chosen = _chosen(op, sides)
    return chosen if chosen is not None else _computed(op, sides, bool(given.get("fmod", 0)))


def _chosen(op: str, sides: list[Interval | None]) -> Interval | None:
    """Return where the numbers of an operator lie that puts out some of its inputs' numbers, or means of them."""
    if op == "Where":
        sides = sides[1:]
    elif op not in AMONG_ALL:
        sides = sides[:1]
    held = [side for side in sides if side is not None]
    if len(held) < len(sides):
        return None
    low, high = min(side[0] for side in held), max(side[1] for side in held)
    if op in AMONG_FIRST or op in AMONG_ALL or op == "Where":
        return low, high
    if op in MEANS:
        return min(low, 0), max(high, 0)
    if op == "Relu":
        return max(low, 0), max(high, 0)
    return (math.floor(low), math.ceil(high)) if op in WHOLE else None


def _computed(op: str, sides: list[Interval | None], fmod: bool) -> Interval | None:
    first, second = sides[0], sides[1] if len(sides) > 1 else None
    if op == "Clip":
        low, high = (second or first), (sides[2] if len(sides) > 2 else None) or first
        return (low[0], high[1]) if low is not None and high is not None else None
    if op == "Mod" and second is not None and second[0] > 0 and not fmod:
        return 0, second[1] - 1
    if first is None or second is None:
        return None
    if op in ("Add", "Sub"):
        low, high = (second[0], second[1]) if op == "Add" else (-second[1], -second[0])
        return first[0] + low, first[1] + high
    if op == "Mul" or (op == "Div" and second[0] >= 1):
        corners = [one * other if op == "Mul" else one / other for one in first for other in second]
        return min(corners), max(corners)
    return None
