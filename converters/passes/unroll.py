"""Loop, Scan and SequenceMap with a known number of rounds, unrolled.

Why: Sentis imports no control flow. Exporters write a Loop for `for` in scripted models, a Scan for recurrences. With
fixed shapes the number of rounds is known, and often whether a Loop goes on: each round's nodes are written one behind
the other, values that loops hand on become tensors, collected outputs a Concat. Does not fire where the number of
rounds, or whether a Loop goes on, depends on data, above 512 rounds, and above 20,000 nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from converters.passes.base import Context, Outcome, Pass
from converters.passes.emit import Emit, Refusal
from converters.passes.fold import Folder, sharpened
from converters.passes.rewrite import UNFIT, names_of, splice
from converters.passes.rounds import Body
from converters.passes.sequences import elements_of
from converters.scan.model import opset_of
from converters.scan.operators import STANDARD, label_of
from converters.scan.view import Place

if TYPE_CHECKING:
    import onnx

MOST_ROUNDS = 512
MOST_NODES = 20_000
SWEEPS = 500  # one node a sweep, inner loops after those around them
SCAN_OPSET = 9  # the older Scan has a batch axis
DATA_DECIDES = "its number of rounds depends on the inputs; fix their shapes, or bind one (--bind)"


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Unroll one node after another until what is left depends on data."""
    outcome = Outcome()
    for _ in range(SWEEPS):
        outcome.left = {}
        found = _next(model, context, outcome) if context.room() else None
        if found is None:
            break
        index, emit = found
        node = model.graph.node[index]
        outcome.changed += 1
        outcome.places.append(f"{node.op_type} {label_of(node)}")
        splice(model.graph, {index: emit})
        context.spend(0)
        context.forget()
    return outcome


def _next(model: onnx.ModelProto, context: Context, outcome: Outcome) -> tuple[int, Emit] | None:
    """Return the first node that can be unrolled, and what replaces it."""
    if not any(node.op_type in WRITERS for node in model.graph.node):
        return None
    opset, view, taken = opset_of(model), context.view(model), names_of(model.graph)
    folder = Folder(sharpened(model, context.known, opset), opset)
    for index, node in enumerate(model.graph.node):
        if node.op_type not in WRITERS or node.domain not in STANDARD:
            continue
        place = Place(node, view, opset, context.known)
        emit = Emit(place, taken, "unroll")
        try:
            WRITERS[node.op_type](place, emit, folder)
        except Refusal as reason:
            outcome.left[label_of(node)] = str(reason)
        except UNFIT as error:
            outcome.left[label_of(node)] = f"its inputs or attributes do not fit ({type(error).__name__})"
        else:
            return index, emit
    return None


def _limited(rounds: int, body: Body) -> int:
    """Return a number of rounds.

    Raises:
        Refusal: it would be too many nodes.
    """
    if rounds > MOST_ROUNDS or rounds * max(1, len(body.graph.node)) > MOST_NODES:
        copies = f"{rounds} rounds of {len(body.graph.node)} nodes"
        raise Refusal(f"{copies} are too many; export one round with its state as input and output")
    return rounds


def _loop(place: Place, emit: Emit, folder: Folder) -> None:
    """Write the rounds of a Loop: body (number, goes on, carried…) to (goes on, carried…, collected…)."""
    body = Body(place.attributes["body"], emit, folder)
    given = folder.value(place.name(0)) if place.name(0) else None
    if place.name(0) and given is None:
        raise Refusal(DATA_DECIDES)
    rounds = int(given.reshape(())) if given is not None else MOST_ROUNDS + 1
    start = folder.value(place.name(1)) if place.name(1) else np.array(True)
    if start is None:
        raise Refusal("whether it begins depends on the inputs")
    counted = body.keeps(1, 0)
    if counted and start.reshape(()):
        _limited(rounds, body)
    carried, goes_on = list(place.node.input[2:]), place.name(1)
    collected: list[list[str]] = [[] for _ in range(len(body.graph.output) - 1 - len(carried))]
    number = 0
    while start is not None and start.reshape(()) and number < rounds:
        _limited(number + 1, body)
        goes_on = goes_on or emit.array(np.array(True))
        results = body.round(number, [body.constant(np.array(number, np.int64)), goes_on, *carried])
        goes_on, carried = results[0], results[1 : 1 + len(carried)]
        for parts, name in zip(collected, results[1 + len(carried) :], strict=True):
            parts.append(name)
        number += 1
        if not counted and number < rounds:
            start = folder.value(goes_on)
            if start is None:
                raise Refusal("whether it goes on depends on data")
    body.results(carried, collected, [0] * len(collected), [False] * len(collected))


def _scan(place: Place, emit: Emit, folder: Folder) -> None:
    """Write the rounds of a Scan: body (carried…, elements…) to (carried…, collected…)."""
    if place.opset < SCAN_OPSET:
        raise Refusal(f"the Scan of opset {place.opset} has a batch axis")
    given, body = place.attributes, Body(place.attributes["body"], emit, folder)
    count = int(given["num_scan_inputs"])
    split = len(place.node.input) - count
    carried, whole = list(place.node.input[:split]), list(place.node.input[split:])
    axes = list(given.get("scan_input_axes") or [0] * count)
    sizes = {_size(place, folder, name, axis) for name, axis in zip(whole, axes, strict=True)}
    if None in sizes or len(sizes) != 1:
        raise Refusal(DATA_DECIDES)
    rounds = _limited(sizes.pop() or 0, body)
    backward = list(given.get("scan_input_directions") or [0] * count)
    collected: list[list[str]] = [[] for _ in range(len(body.graph.output) - split)]
    for number in range(rounds):
        places = [rounds - 1 - number if back else number for back in backward]
        elements = [
            emit("Gather", name, emit.array(np.array(at, np.int64)), axis=axis)
            for name, at, axis in zip(whole, places, axes, strict=True)
        ]
        results = body.round(number, [*carried, *elements])
        carried = results[:split]
        for parts, name in zip(collected, results[split:], strict=True):
            parts.append(name)
    out_axes = list(given.get("scan_output_axes") or [0] * len(collected))
    turned = [bool(one) for one in given.get("scan_output_directions") or [0] * len(collected)]
    body.results(carried, collected, out_axes, turned)


def _size(place: Place, folder: Folder, name: str, axis: int) -> int | None:
    shape = place.view.shape(name) or folder.view.shape(name)
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _sequence_map(place: Place, emit: Emit, folder: Folder) -> None:
    """Write the body for each element; every output is a sequence again."""
    body = Body(place.attributes["body"], emit, folder)
    first = elements_of(place, emit, place.name(0))
    others = [_elements_or_tensor(place, emit, name, len(first)) for name in place.node.input[1:]]
    rounds = _limited(len(first), body)
    if not rounds:
        raise Refusal("the sequence is empty")
    made = [body.round(number, [column[number] for column in (first, *others)]) for number in range(rounds)]
    for position, output in enumerate(place.node.output):
        if output:
            emit("SequenceConstruct", *(row[position] for row in made), to=output)


def _elements_or_tensor(place: Place, emit: Emit, name: str, count: int) -> list[str]:
    """Return the elements of a further sequence, or a tensor once for each round."""
    if place.view.type(name):
        return [name] * count
    elements = elements_of(place, emit, name)
    if len(elements) < count:
        raise Refusal("its sequences are of different lengths")
    return elements


WRITERS: dict[str, Callable[[Place, Emit, Folder], None]] = {
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
PASS = Pass("unroll", "Sentis imports no control flow", ("CONTROL_FLOW",), run, operators=tuple(WRITERS))
