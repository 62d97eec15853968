"""Sizes that a graph computes from shapes before it runs, as exporters write them behind Resize, Reshape and Expand.

Sentis follows the same sums while it imports, element by element, in tensors of up to 16 elements. A tensor of rank 0
or 1 is a list here; what is not known is None, and a size that bears a name is that name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.scan.schemas import attribute_value

if TYPE_CHECKING:
    import onnx

    from converters.scan.view import View

Size = int | float | str | None
MOST_ELEMENTS = 16
LARGEST = 1e38  # further from zero no size is of interest
DEEPEST = 64  # nodes followed back
SAME = {"Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"}  # of a list, nothing changes
FLOATS = {1, 10, 11}  # FLOAT, FLOAT16, DOUBLE
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "Min": min, "Max": max,
}  # fmt: skip
ROUNDING: dict[str, Callable[[float], float]] = {"Floor": math.floor, "Ceil": math.ceil}


def computed(view: View, name: str) -> list[Size] | None:
    """Return the numbers of a tensor of sizes, None where not even their count is known."""
    return _of(view, name, {}, 0)


def _of(view: View, name: str, found: dict[str, list[Size] | None], depth: int) -> list[Size] | None:
    if name not in found:
        found[name] = None  # a cycle ends here
        made = _made(view, name, found, depth) if depth <= DEEPEST else None
        found[name] = made if made is not None and len(made) <= MOST_ELEMENTS else None
    return found[name]


def _made(view: View, name: str, found: dict[str, list[Size] | None], depth: int) -> list[Size] | None:
    value = view.value(name)
    if value is not None:
        held = value.ndim <= 1 and value.dtype.kind in "iuf" and value.size <= MOST_ELEMENTS
        return [_single(one) for one in value.reshape(-1).tolist()] if held else None
    node = view.maker(name)
    if node is None or not node.input:
        return None
    given = {attribute.name: attribute_value(node.op_type, attribute) for attribute in node.attribute}
    if node.op_type == "Shape":
        sizes = view.sizes.get(node.input[0]) or view.shape(node.input[0])
        named: list[Size] = list(sizes or ())
        return None if sizes is None else named[given.get("start", 0) : given.get("end")]
    sides = [_of(view, one, found, depth + 1) if one else None for one in node.input]
    return None if sides[0] is None else _computed(node, view, given, sides)


def _computed(
    node: onnx.NodeProto, view: View, given: dict[str, Any], sides: list[list[Size] | None]
) -> list[Size] | None:
    """Return what one operator makes of lists."""
    op, first = node.op_type, sides[0] or []
    if op in SAME:
        return first
    if op == "Concat":
        return None if None in sides else [one for side in sides for one in side or []]
    if op == "Cast":
        return [_cast(one, whole=given.get("to") not in FLOATS) for one in first]
    if op in ROUNDING:
        return [ROUNDING[op](one) if isinstance(one, int | float) else None for one in first]
    if op == "Slice":
        return _sliced(given, sides)
    second = sides[1] if len(sides) == 2 else None
    if second is None:
        return None
    if op == "Gather":
        held = all(isinstance(index, int) and -len(first) <= index < len(first) for index in second)
        return [first[index] for index in second if isinstance(index, int)] if held else None
    if op == "Div":
        return _pairwise(_quotient, first, second)
    return _pairwise(ARITHMETIC[op], first, second) if op in ARITHMETIC else None


def _single(one: Size) -> Size:
    """Return a float as float32 holds it, None where it is no finite number; everything else as it is."""
    if not isinstance(one, float):
        return one
    return float(np.float32(one)) if math.isfinite(one) and abs(one) < LARGEST else None


def _cast(one: Size, *, whole: bool) -> Size:
    if not isinstance(one, int | float):
        return one  # a size is a whole number in any type
    return int(one) if whole else _single(float(one))


def _quotient(a: float, b: float) -> float | None:
    if not b:
        return None
    return math.trunc(a / b) if isinstance(a, int) and isinstance(b, int) else a / b


def _pairwise(function: Callable[[Any, Any], Any], left: list[Size], right: list[Size]) -> list[Size] | None:
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        return None
    count = max(len(left), len(right)) if left and right else 0
    pairs = zip(left * (count if len(left) == 1 else 1), right * (count if len(right) == 1 else 1), strict=True)
    made = [function(a, b) if isinstance(a, int | float) and isinstance(b, int | float) else None for a, b in pairs]
    return [_single(one) for one in made]


def _sliced(given: dict[str, Any], sides: list[list[Size] | None]) -> list[Size] | None:
    """Return a slice of a list: bounds from attributes before opset 10, from inputs since."""
    bounds = [given.get("starts"), given.get("ends"), None, None] if "starts" in given else [*sides[1:], *[None] * 4]
    start, end, step = bounds[0], bounds[1], bounds[3] or [1]
    if not start or not end or not all(isinstance(one, int) for one in (start[0], end[0], step[0])) or not step[0]:
        return None
    return (sides[0] or [])[slice(start[0], end[0], step[0])]
