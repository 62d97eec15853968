"""What the rules of `sentis/*.json` ask of a node: a predicate's name, its argument, an answer with its evidence.

A rule's `when` maps names to arguments; it fires where all answer. `check` names a predicate of `scan/checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from converters.onnx_file import type_name
from converters.scan.answers import BOOL, CHECKS, TRUTHS, Answer, Found, carried_from, origin
from converters.scan.intervals import interval
from converters.scan.view import Place

Predicate = Callable[[Place, Any], Answer]
PREDICATES: dict[str, Predicate] = {}

NEVER_NEGATIVE = {"Relu", "Sigmoid", "Softmax", "Abs", "Exp", "Sqrt", "HardSigmoid", "Softplus", "ReduceL1", "ReduceL2"}
NEVER_NEGATIVE |= {"ReduceSumSquare", "Shape", "Size", "ArgMax", "ArgMin"}


def predicate(name: str) -> Callable[[Predicate], Predicate]:
    """Register a predicate under its name."""

    def register(function: Predicate) -> Predicate:
        PREDICATES[name] = function
        return function

    return register


def holds(when: dict[str, Any], place: Place) -> Answer:
    """Return the evidence where all predicates of a rule hold, None where one does not."""
    found: list[Found] = []
    for name, argument in when.items():
        if (answer := PREDICATES[name](place, argument)) is None:
            return None
        found.append(answer)
    evidence = ", ".join(dict.fromkeys(one.evidence for one in found if one.evidence))
    return Found(evidence, all(one.sure for one in found))


@predicate("always")
def _always(place: Place, argument: bool) -> Answer:
    return Found()


@predicate("check")
def _check(place: Place, argument: str) -> Answer:
    return CHECKS[argument](place)


@predicate("opset_below")
def _opset_below(place: Place, argument: int) -> Answer:
    return Found(f"opset {place.opset}") if place.opset < argument else None


@predicate("opset_from")
def _opset_from(place: Place, argument: int) -> Answer:
    return Found() if place.opset >= argument else None


@predicate("attribute")
def _attribute(place: Place, argument: dict[str, Any]) -> Answer:
    """Hold where an attribute is as told: `present`, `absent`, `is`, `not`, `in`, `not_in`, `has`, `any_not`."""
    name = argument["name"]
    given = name in place.attributes
    if "present" in argument or "absent" in argument:
        return Found(f"{name} {'is given' if given else 'is missing'}") if given == ("present" in argument) else None
    value = place.attributes.get(name, argument.get("default"))
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    fires = {
        "is": lambda wanted: value == wanted,
        "not": lambda wanted: value != wanted,
        "in": lambda wanted: value in wanted,
        "not_in": lambda wanted: value not in wanted,
        "has": lambda wanted: wanted in [str(item).lower() for item in items],
        "any_not": lambda wanted: any(item != wanted for item in items),
    }
    word = next(word for word in fires if word in argument)
    shown = type_name(value) if name == "to" and isinstance(value, int) else _shown(value)
    return Found(f"{name} = {shown}") if fires[word](argument[word]) else None


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, float) else f"{value:g}"
    return text if len(text) <= 60 else text[:57] + "…"


@predicate("inputs_below")
def _inputs_below(place: Place, argument: int) -> Answer:
    count = len(place.positions)
    return Found(f"{count} of {argument} inputs") if count < argument else None


@predicate("inputs_from")
def _inputs_from(place: Place, argument: int) -> Answer:
    count = len(place.positions)
    return Found(f"{count} inputs") if count >= argument else None


@predicate("inputs_other_than")
def _inputs_other_than(place: Place, argument: int) -> Answer:
    count = len(place.positions)
    return Found(f"{count} inputs") if count != argument else None


@predicate("positions_below")
def _positions_below(place: Place, argument: int) -> Answer:
    """Count places, an empty name is one."""
    count = len(place.node.input)
    return Found(f"{count} of {argument} inputs") if count < argument else None


@predicate("input_absent")
def _input_absent(place: Place, argument: int) -> Answer:
    return Found(f"input {argument} is not given") if not place.name(argument) else None


@predicate("output_read")
def _output_read(place: Place, argument: list[int]) -> Answer:
    """Hold where a node reads one of the outputs; outputs of the model that nothing makes are dropped and said so."""
    outputs = place.node.output
    for position in argument:
        name = outputs[position] if position < len(outputs) else ""
        if name and place.view.readers.get(name):
            return Found(f"output {position} ({name!r}) is read by {place.view.readers[name][0][0].op_type}")
        if name and any(value.name == name for value in place.view.graph.output):
            return Found(f"output {position} ({name!r}) is an output of the model", sure=False)
    return None


@predicate("output_named")
def _output_named(place: Place, argument: list[int]) -> Answer:
    outputs = list(place.node.output)
    named = [position for position in argument if position < len(outputs) and outputs[position]]
    return Found(f"{len(outputs)} outputs, opset {place.opset}") if named else None


@predicate("kind")
def _kind(place: Place, argument: dict[str, Any]) -> Answer:
    for position in _chosen(place, argument["inputs"]):
        if place.kind(position) == argument["is"]:
            return Found(f"input {position} ({place.name(position)!r}) is {_type(place, position)}")
    return None


@predicate("type")
def _type_in(place: Place, argument: dict[str, Any]) -> Answer:
    for position in _chosen(place, argument["inputs"]):
        if _type(place, position) in argument["in"]:
            return Found(f"input {position} ({place.name(position)!r}) is {_type(place, position)}")
    return None


@predicate("mixed_kinds")
def _mixed(place: Place, argument: Any) -> Answer:
    kinds: dict[str, int] = {}
    for position in _chosen(place, argument):
        if kind := place.kind(position):
            kinds.setdefault(kind, position)
    if len(kinds) < 2:
        return None
    sides = sorted(kinds.values())
    return Found(" and ".join(f"input {side} is {_type(place, side)}" for side in sides))


@predicate("rank")
def _rank(place: Place, argument: dict[str, Any]) -> Answer:
    """Hold where a known rank `is` or lies `above` a number."""
    for position in argument["inputs"]:
        rank = place.rank(position)
        if rank is None:
            continue
        if rank == argument.get("is", -1) or rank > argument.get("above", rank):
            return Found(f"input {position} has rank {rank}")
    return None


@predicate("constant")
def _constant(place: Place, argument: dict[str, Any]) -> Answer:
    """Hold where a constant input `has` a number, is `in` some, lies `outside` a range, or is a `scalar`."""
    value = place.value(argument["input"])
    if value is None or value.size == 0 or value.size > argument.get("most", value.size) or value.dtype.kind in "OSUV":
        return None
    numbers = value.reshape(-1)
    fires = {
        "has": lambda wanted: bool((numbers == wanted).any()),
        "in": lambda wanted: numbers.size == 1 and float(numbers[0]) in wanted,
        "outside": lambda wanted: bool(((numbers < wanted[0]) | (numbers > wanted[1])).any()),
        "scalar": lambda wanted: numbers.size == 1,
    }
    word = next(word for word in fires if word in argument)
    if not fires[word](argument[word]):
        return None
    found = f"{float(numbers[0]):g}" if numbers.size == 1 else f"{numbers.size} numbers" + (" with 0" * (word == "has"))
    return Found(f"input {argument['input']} is the constant {found}")


@predicate("may_be_negative")
def _may_be_negative(place: Place, argument: int) -> Answer:
    name, view = place.name(argument), place.view
    value = view.value(name)
    if value is not None:
        return Found() if value.size and value.dtype.kind not in "OSUV" and bool((value < 0).any()) else None
    maker = carried_from(place, name)
    known = interval(view, name)  # an unsigned input, what is clipped at 0, the truth of a comparison
    never = (maker is not None and maker.op_type in NEVER_NEGATIVE) or (known is not None and known[0] >= 0)
    return None if never else Found()


@predicate("not_zero_one")
def _not_zero_one(place: Place, argument: Any) -> Answer:
    for position in _chosen(place, argument):
        name = place.name(position)
        maker = carried_from(place, name)
        if maker is None:
            if origin(place, name) in place.view.inputs:
                return Found(f"input {position} comes from an input of the model")
        elif maker.op_type == "Cast" and place.view.type(maker.input[0] if maker.input else "") != BOOL:
            inner = maker.input[0] if maker.input else ""
            source = carried_from(place, inner)
            if source is None or source.op_type not in TRUTHS:
                return Found(f"input {position} is a Cast of {type_name(place.view.type(inner))}")
    return None


@predicate("external_value")
def _external_value(place: Place, argument: bool) -> Answer:
    """Hold where the `value` of a node lies in a side file; at offset 0 what is read there is right."""
    for attribute in place.node.attribute:
        if attribute.name == "value" and attribute.t.data_location == attribute.t.EXTERNAL:
            texts = {entry.key: entry.value for entry in attribute.t.external_data}
            offset = texts.get("offset", "0") or "0"
            return Found(f"offset {offset[:40]!s} in {texts.get('location', '')!r}", offset.strip("0") != "")
    return None


@predicate("legacy_broadcast")
def _legacy_broadcast(place: Place, argument: bool) -> Answer:
    return Found() if place.attributes.get("broadcast") else None


@predicate("no_axes")
def _no_axes(place: Place, argument: bool) -> Answer:
    axes = place.ints("axes", 1)
    if axes is None and place.name(1):
        return None
    return Found("no axes") if not axes else None


@predicate("old_softmax_axis")
def _old_softmax_axis(place: Place, argument: bool) -> Answer:
    """Hold where ONNX below opset 13 (all axes from `axis` on, 1 when absent) and one axis (-1 when absent) differ."""
    given, shape = place.attributes.get("axis"), place.shape(0)
    shown = "axis is not given" if given is None else f"axis {given}"
    if shape is None:
        return None if given == -1 else Found(f"{shown}, the rank is not known", sure=False)
    rank = len(shape)
    first, one = (1, rank - 1) if given is None else (given % rank, given % rank) if rank else (0, 0)
    others = [size for axis, size in enumerate(shape) if axis >= first and axis != one]
    if first <= one and all(size == 1 for size in others):
        return None
    return Found(f"{shown}, rank {rank}", sure=first > one or any(size not in (1, None) for size in others))


def _chosen(place: Place, positions: Any) -> Iterable[int]:
    return place.positions if positions == "all" else positions


def _type(place: Place, position: int) -> str:
    return type_name(place.view.type(place.name(position)))
