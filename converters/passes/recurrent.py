"""GRU and RNN, and LSTM with activations that Sentis does not compute, unrolled over a known number of steps.

Why: Sentis imports neither GRU nor RNN; of LSTM it ignores activation parameters and miscomputes Softsign on the CPU.
The inputs of all steps are multiplied at once, each step is a product with the state and its gates. Shapes: S steps,
B rows, H state, D directions. Formulas: ONNX operator definitions. Does not fire where S is not known or above 512,
on lengths per row, peepholes, and coupled gates: `graph hoist-state` makes one step of it, its state outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from converters.passes.cells import Cell, gru_step, lstm_step, rnn_step
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

MOST_STEPS = 512
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
STEPS: dict[str, Callable[[Emit, Cell, str, str, str], tuple[str, str]]]
STEPS = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}


@dataclass
class Layout:
    """Sizes of one node: steps, state, directions, and whether rows come first."""

    steps: int
    state: int
    directions: list[bool]
    rows_first: bool


def write(place: Place, emit: Emit) -> None:
    """Write every step of every direction, and the outputs that are wanted."""
    op = place.node.op_type
    layout = _layout(place)
    x = place.name(0)
    x = emit("Transpose", x, perm=[1, 0, 2]) if layout.rows_first else x
    sequences, states, cells = [], [], []
    for direction, backward in enumerate(layout.directions):
        cell, products = _cell(place, emit, layout, direction, x)
        hidden = _initial(place, emit, layout, direction, 5, x)
        memory = _initial(place, emit, layout, direction, 6, x) if op == "LSTM" else ""
        made: list[str] = []
        for step in reversed(products) if backward else products:
            hidden, memory = STEPS[op](emit, cell, step, hidden, memory)
            made.append(hidden)
        sequences.append(made[::-1] if backward else made)
        states.append(hidden)
        cells.append(memory)
    _outputs(place, emit, layout, sequences, states, cells)


def _layout(place: Place) -> Layout:
    given, op, shape = place.attributes, place.node.op_type, place.shape(0)
    rows_first = bool(given.get("layout", 0))
    recurrent = place.shape(2)
    steps = shape[1 if rows_first else 0] if shape and len(shape) == 3 else None
    if steps is None:
        raise Refusal("the number of steps is not known: fix it, or take its state out (graph hoist-state)")
    if not 0 < steps <= MOST_STEPS:
        raise Refusal(f"{steps} steps would be as many copies; take its state out (graph hoist-state)")
    if recurrent is None or len(recurrent) != 3 or not recurrent[2]:
        raise Refusal("the shape of its weights is not known")
    lengths = place.value(4)
    if place.name(4) and (lengths is None or bool((lengths != steps).any())):
        raise Refusal("it has lengths of its own for each row")
    if place.name(7) or given.get("input_forget", 0):
        raise Refusal("it has peepholes or coupled gates")
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    named = directions.get(given.get("direction", "forward"))
    if named is None or op not in GATES:
        raise Refusal("its direction is not known")
    return Layout(steps, recurrent[2], named, rows_first)


def _cell(place: Place, emit: Emit, layout: Layout, direction: int, x: str) -> tuple[Cell, list[str]]:
    """Return a direction's weights, and the products of its inputs, [B, gates · H] for each step."""
    op, size = place.node.op_type, GATES[place.node.op_type] * layout.state
    weights, recurrent = (_of_direction(emit, place.name(position), direction) for position in (1, 2))
    product = emit("MatMul", x, emit("Transpose", weights, perm=[1, 0]))
    apart = ""
    if place.name(3):
        both = emit.split(_of_direction(emit, place.name(3), direction), [size, size], axis=0)
        product = emit("Add", product, both[0])
        if op == "GRU" and place.attributes.get("linear_before_reset", 0):
            apart = both[1]
        else:
            product = emit("Add", product, both[1])
    parts = emit.split(product, [1] * layout.steps, axis=0)
    per_direction = len(ACTIVATIONS[op])
    names = list(place.attributes.get("activations") or ACTIVATIONS[op] * len(layout.directions))
    if len(names) != per_direction * len(layout.directions):
        raise Refusal("its activations are not as many as it needs")
    first = direction * per_direction
    alphas, betas = (list(place.attributes.get(f"activation_{key}") or []) for key in ("alpha", "beta"))
    cell = Cell(
        recurrent=emit("Transpose", recurrent, perm=[1, 0]),
        bias=apart,
        activations=Cell.with_parameters(names, alphas, betas)[first : first + per_direction],
        state=layout.state,
        clip=float(place.attributes.get("clip", 0.0)),
    )
    return cell, [emit.squeezed(part, [0]) for part in parts]


def _of_direction(emit: Emit, name: str, direction: int) -> str:
    """Return a weight of one direction, without the axis of directions."""
    return emit("Gather", name, emit.array(np.array(direction, np.int64)), axis=0)


def _initial(place: Place, emit: Emit, layout: Layout, direction: int, position: int, x: str) -> str:
    """Return the state before the first step, [B, H]: the given one, or zeros."""
    if place.name(position):
        axis = 1 if layout.rows_first else 0
        return emit("Gather", place.name(position), emit.array(np.array(direction, np.int64)), axis=axis)
    shape = place.shape(0) or ()
    rows, dtype = shape[0 if layout.rows_first else 1], emit.dtype(place.name(0))
    if rows is not None:
        return emit.array(np.zeros((rows, layout.state), dtype))
    count = emit("Gather", emit("Shape", x), emit.ints(1), axis=0)
    target = emit("Concat", count, emit.ints(layout.state), axis=0)
    return emit("Expand", emit.array(np.zeros((1, layout.state), dtype)), target)


def _outputs(
    place: Place, emit: Emit, layout: Layout, sequences: list[list[str]], states: list[str], cells: list[str]
) -> None:
    outputs = [*place.node.output, "", "", ""][:3]
    if outputs[0]:
        steps, several = (1, 2) if layout.rows_first else (0, 1)
        rows = [emit("Concat", *(emit.unsqueezed(one, [steps]) for one in made), axis=steps) for made in sequences]
        wide = [emit.unsqueezed(row, [several]) for row in rows]
        _joined(emit, wide, several, outputs[0])
    for name, last in ((outputs[1], states), (outputs[2], cells)):
        if name:
            axis = 1 if layout.rows_first else 0
            _joined(emit, [emit.unsqueezed(one, [axis]) for one in last], axis, name)


def _joined(emit: Emit, parts: list[str], axis: int, to: str) -> None:
    if len(parts) == 1:
        emit("Identity", parts[0], to=to)
    else:
        emit("Concat", *parts, to=to, axis=axis)


PASS = node_pass(
    "recurrent", "Sentis imports no GRU or RNN and computes some activations of LSTM wrongly", write,
    mends=["LSTM.SOFTSIGN", "LSTM.ACT_PARAMS"], operators=["GRU", "RNN"],
)  # fmt: skip
