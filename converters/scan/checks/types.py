"""Checks about types: casts, and values that stand for truth."""

from __future__ import annotations

from converters.onnx_file import type_name
from converters.scan.answers import BOOL, TRUTHS, Answer, Found, carried_from, check
from converters.scan.intervals import RANGES, interval
from converters.scan.view import Place

BITS = {"BOOL": 1, "UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16}
SHAPE_MAKERS = {"Shape", "Size"}
SHAPE_READERS = {"Reshape": 1, "Expand": 1, "Slice": 1, "Tile": 1, "ConstantOfShape": 0, "Range": 0, "Resize": 3}
ROUNDED, KEEPS_WHOLE, DEEPEST = {"Floor", "Ceil", "Round", "Sign"}, {"Add", "Sub", "Mul", "Neg", "Abs"}, 8
FOLLOWED_AT_MOST = 200  # nodes looked at on the way back from one Cast


@check
def not_boolean(place: Place) -> Answer:
    """A cast to BOOL of something that is neither BOOL nor made of comparisons."""
    maker = carried_from(place, place.name(0))
    if place.view.type(place.name(0)) == BOOL or (maker is not None and maker.op_type in TRUTHS):
        return None
    value = place.value(0)
    if value is not None and bool(((value == 0) | (value == 1)).all()):
        return None
    source = place.view.type(place.name(0))
    return Found(f"from {type_name(source)}" if source else "")


@check
def narrows(place: Place) -> Answer:
    """A cast to fewer bits than the input has, or to other signs, unless what is cast is known to fit."""
    source, target = place.view.type(place.name(0)), int(place.attributes["to"])
    maker = carried_from(place, place.name(0))
    if source == target or (maker is not None and maker.op_type in TRUTHS):
        return None
    name, wanted = type_name(source), type_name(target)
    room = BITS.get(wanted, 32) - BITS.get(name, 99) - (not wanted.startswith("U"))  # a sign takes one bit
    if name.startswith(("U", "B")) and room >= 0:
        return None
    held, fits = interval(place.view, place.name(0)), RANGES.get(wanted)
    if held is not None and fits is not None and fits[0] <= held[0] and held[1] <= fits[1]:
        return None
    return Found(f"from {name}" if source else "", sure=bool(source))


@check
def leaves_its_type(place: Place) -> Answer:
    """Arithmetic in 8 or 16 bits whose result can lie outside of them."""
    name = type_name(place.view.type(place.name(0)))
    if BITS.get(name, 0) < 8:
        return None
    held, fits = interval(place.view, place.node.output[0]), RANGES[name]
    if held is not None and fits[0] <= held[0] and held[1] <= fits[1]:
        return None
    return Found(f"{name}, from {held[0]:g} to {held[1]:g}" if held is not None else name)


@check
def shape_arithmetic(place: Place) -> Answer:
    """A cast of a float that is computed from sizes and goes back into a size."""
    if place.kind(0) == "int" or _is_whole(place, place.name(0)):
        return None
    waiting, seen = [place.name(0)], set[str]()
    while waiting and len(seen) < FOLLOWED_AT_MOST:
        name = waiting.pop()
        maker = place.view.maker(name)
        if name in seen or maker is None:
            continue
        seen.add(name)
        if maker.op_type in SHAPE_MAKERS:
            return Found("sizes computed as floats") if _reaches_a_size(place) else None
        waiting += maker.input
    return None


def _is_whole(place: Place, name: str, depth: int = 0) -> bool:
    """Tell whether a float is a whole number: rounded before, or a sum or product of such."""
    maker = place.view.maker(name)
    if maker is None or depth > DEEPEST:
        return False
    if maker.op_type in ROUNDED:
        return True
    inputs = [one for one in maker.input if one]
    return maker.op_type in KEEPS_WHOLE and all(_is_whole(place, one, depth + 1) for one in inputs)


def _reaches_a_size(place: Place) -> bool:
    waiting, seen = list(place.node.output), set[str]()
    while waiting and len(seen) < FOLLOWED_AT_MOST:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for reader, position in place.view.readers.get(name, ()):
            if position >= SHAPE_READERS.get(reader.op_type, 99):
                return True
            waiting += reader.output
    return False


@check
def training_dropout(place: Place) -> Answer:
    """A Dropout of opset 12 or newer whose third input is true, or can be."""
    if not place.name(2):
        return None
    value = place.value(2)
    if value is None:
        return Found("training_mode is computed", sure=False)
    return Found("training_mode is true") if bool(value.any()) else None
