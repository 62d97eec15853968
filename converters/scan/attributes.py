"""Findings about attributes that hold for every operator: missing, unknown, ignored, out of range, of unknown value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from converters.finding import Finding
from converters.onnx_file import type_name
from converters.scan.view import Place

LISTS = ("value", "value_float", "value_floats", "value_int", "value_ints")  # what Sentis reads of a Constant
AXIS_MAY_BE_RANK = {"Flatten", "OneHot"}
SHOWN = 60


def attribute_findings(place: Place, label: str) -> Iterator[Finding]:
    """Yield findings about a handled operator's attributes."""
    row = place.known.operators[place.node.op_type]
    for attribute in place.node.attribute:
        if attribute.name not in place.attributes:
            shown = f"{place.node.op_type}.{attribute.name[:SHOWN]}"
            yield place.known.finding("ATTRIBUTE.TYPE", label, shown)
    yield from _missing(place, label, row)
    yield from _ignored(place, label, row)
    yield from _modes(place, label, row)
    yield from _axis(place, label)
    if place.node.op_type == "Constant" and not _has_value(place):
        names = ", ".join(sorted(place.attributes)) or "nothing"
        yield place.known.finding("CONSTANT.VALUE", label, f"Constant, {names[:SHOWN]} given")
    if place.node.op_type == "Cast":
        yield from _target(place, label)


def _read(how: dict[str, Any], opset: int) -> bool:
    return opset < how.get("below", opset + 1) and opset >= how.get("from", opset)


def _missing(place: Place, label: str, row: dict[str, Any]) -> Iterator[Finding]:
    for name, how in row.get("reads", {}).items():
        if how.get("required") and _read(how, place.opset) and name not in place.attributes:
            yield place.known.finding("ATTRIBUTE.MISSING", label, f"{place.node.op_type}.{name}")


def _ignored(place: Place, label: str, row: dict[str, Any]) -> Iterator[Finding]:
    """Yield attributes that Sentis drops with a value that matters, and those it does not know."""
    reads, ignores = row.get("reads", {}), row.get("ignores", {})
    for name, value in place.attributes.items():
        shown = f"{place.node.op_type}.{name[:SHOWN]} = {str(value)[:SHOWN]}"
        if name in ignores:
            harmless = ignores[name]
            if isinstance(harmless, list) and value not in harmless:
                yield place.known.finding("ATTRIBUTE.IGNORED", label, shown)
        elif name not in reads and not (place.node.op_type == "Constant" or name.startswith("_")):
            yield place.known.finding("ATTRIBUTE.UNKNOWN", label, shown)


def _modes(place: Place, label: str, row: dict[str, Any]) -> Iterator[Finding]:
    for name, mode in row.get("modes", {}).items():
        value = place.attributes.get(name)
        if value is None or not _read(row["reads"].get(name, {}), place.opset):
            continue
        plain = str.lower if name == "activations" else str  # ONNX compares the names of activations without case
        values = {plain(str(item)) for item in mode["values"]}
        for item in value if isinstance(value, list) else [value]:
            if plain(str(item)) not in values:
                shown = f"{place.node.op_type}.{name} = {str(item)[:SHOWN]}"
                yield place.known.finding("ATTRIBUTE.MODE", label, f"{shown}, {mode['else']} is used")


def _axis(place: Place, label: str) -> Iterator[Finding]:
    op = place.node.op_type
    axis, rank = place.attributes.get("axis"), place.rank(0)
    if not isinstance(axis, int) or rank is None or "axis" not in place.known.operators[op].get("reads", {}):
        return
    most = rank + (op in AXIS_MAY_BE_RANK)
    if not -most <= axis < most:
        yield place.known.finding("ATTRIBUTE.AXIS", label, f"{op}.axis = {axis} on rank {rank}")


def _has_value(place: Place) -> bool:
    tensors = [attribute.t for attribute in place.node.attribute if attribute.name == "value"]
    if tensors:
        return bool(tensors[0].data_type)
    return any(name in place.attributes for name in LISTS)


def _target(place: Place, label: str) -> Iterator[Finding]:
    target = place.attributes.get("to")
    name = type_name(target) if isinstance(target, int) else ""
    if name and not place.known.kind(name):
        yield place.known.finding("CAST.TARGET", label, f"Cast to {name}")
