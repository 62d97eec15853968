"""Between which two numbers an integer tensor lies, as far as its nodes tell."""

from __future__ import annotations

from converters.onnx_file import type_name
from converters.scan.answers import CARRIERS, TRUTHS
from converters.scan.schemas import attribute_value
from converters.scan.view import View

Interval = tuple[float, float]
DEEPEST = 12  # nodes followed back
RANGES: dict[str, Interval] = {
    "BOOL": (0, 1), "UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767),
    "UINT32": (0, 2**32 - 1), "INT32": (-(2**31), 2**31 - 1),
}  # fmt: skip


def interval(view: View, name: str, depth: int = 0) -> Interval | None:
    """Return the lowest and the highest number that a tensor can hold in Sentis, None where nothing is known.

    A tensor's type says something about inputs only: what Sentis computes is an int32 whatever its type says.
    """
    value = view.value(name)
    if value is not None:
        return (float(value.min()), float(value.max())) if value.size and value.dtype.kind in "iub" else None
    maker = view.maker(name)
    if maker is None:
        return RANGES.get(type_name(view.type(name)))
    if depth > DEEPEST or not maker.input:
        return None
    if maker.op_type in TRUTHS:
        return 0, 1
    sides = [interval(view, one, depth + 1) if one else None for one in maker.input[:3]]
    if maker.op_type in CARRIERS or maker.op_type == "Cast":
        return sides[0] if view.type(maker.input[0]) else None
    given = {attribute.name: attribute_value(maker.op_type, attribute) for attribute in maker.attribute}
    return _computed(maker.op_type, sides, bool(given.get("fmod", 0)))


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
