"""A recurrent model as one step: its states become inputs and outputs, which the caller carries.

GRU, RNN and LSTM begin at zeros inside of a graph and run over a whole sequence. A game hears it piece by piece: the
time axis becomes 1, each node's state an input `state.{i}.h` (and `.c`) and an output `next_state.{i}.h`. Nothing of
this is trusted: a sequence fed step by step must give what the whole gives, else nothing is written. A model that looks
at several times at once in another way (a convolution over time, a mean) fails that proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.divergence import values_of
from converters.probe_inputs import random_inputs
from converters.prove import outputs_of
from converters.surgery.files import forget_inner_shapes, read_whole, removed_on_failure, summary, write_whole
from weights_bridge.compare import Array, compare
from weights_bridge.errors import BudgetMissedError, StageError, unknown_name

if TYPE_CHECKING:
    import onnx

BUDGET_DB = 100.0
STEPS, OTHER = 12, 7  # lengths of the sequence that proves it, and of another that shows which axes are time
STATES = {"GRU": ("h",), "RNN": ("h",), "LSTM": ("h", "c")}
FIRST_STATE, LENGTHS = 5, 4  # inputs of a node
ROWS = "batch"


def hoist_state(path: Path, out: Path, time: str) -> dict[str, Any]:
    """Write a model of one step.

    Args:
        path: a model with GRU, RNN or LSTM over a named axis.
        out: the file to write.
        time: the name of the axis, as `graph info` shows it.

    Returns:
        As every surgery, with `states`: name of the input to (name of the output, sizes).

    Raises:
        StageError: no such axis, no state to take out, or one that does not begin at zeros.
        BudgetMissedError: step by step it computes something else; nothing stays written.
    """
    model = read_whole(path)
    axes = _time_axes(model.graph, time)
    feed = _feed(model, time, STEPS)
    nodes = [node for node in model.graph.node if node.op_type in STATES and node.domain in ("", "ai.onnx")]
    _require_zeros(path, nodes, feed)
    before = type(model.graph)(node=model.graph.node)
    wanted, shorter = outputs_of(path, feed), outputs_of(path, _feed(model, time, OTHER))
    states: dict[str, tuple[str, list[int | str]]] = {}
    for index, node in enumerate(nodes):
        states |= _opened(model.graph, node, index)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == time:
                dim.dim_value = 1
    forget_inner_shapes(model.graph)
    write_whole(model, out, path)
    with removed_on_failure(out):
        level = _climbed(out, feed, axes, wanted, shorter, states)
    proof = f"{STEPS} steps equal the whole, " + ("exact" if level is None else f"{level:.1f} dB or better")
    told = {name: {"output": output, "sizes": shape, "starts": 0} for name, (output, shape) in states.items()}
    return summary(out, before, model.graph, proof, states=told)


def _time_axes(graph: onnx.GraphProto, time: str) -> dict[str, int]:
    """Return input to its axis of time.

    Raises:
        StageError: no input has one.
    """
    named = {value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim] for value in graph.input}
    axes = {name: sizes.index(time) for name, sizes in named.items() if time in sizes}
    if not axes:
        raise unknown_name("size of an input (--time)", time, {one for sizes in named.values() for one in sizes if one})
    return axes


def _feed(model: onnx.ModelProto, time: str, steps: int) -> dict[str, Array]:
    others = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    return random_inputs(model, dict.fromkeys(others, 2) | {time: steps})


def _require_zeros(path: Path, nodes: list[Any], feed: Mapping[str, Array]) -> None:
    if not nodes:
        raise StageError(f"{path}: no GRU, RNN or LSTM in it", hint="only those hold a state inside")
    given: dict[str, str] = {}
    for node in nodes:
        where = f"{node.op_type} {node.name or node.output[0]!r}"
        words = {attribute.name: attribute.s.decode() for attribute in node.attribute if attribute.name == "direction"}
        if words.get("direction", "forward") != "forward":
            raise StageError(f"{where}: runs backward as well", hint="a step cannot know what comes behind it")
        if len(node.input) > LENGTHS and node.input[LENGTHS]:
            raise StageError(f"{where}: has a length for each row", hint="export it without lengths")
        given |= dict.fromkeys(filter(None, node.input[FIRST_STATE : FIRST_STATE + len(STATES[node.op_type])]), where)
    for name, array in values_of(path, list(given), feed).items() if given else ():
        if array.any():
            raise StageError(f"{given[name]}: begins at {name!r}, not at zeros", hint="its state is an input already?")


def _opened(graph: onnx.GraphProto, node: Any, index: int) -> dict[str, tuple[str, list[int | str]]]:
    """Let a node's states come from inputs and go to outputs; return input to (output, sizes)."""
    import onnx

    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    recurrent = next((tensor.dims for tensor in graph.initializer if tensor.name == node.input[2]), None)
    width = attributes.get("hidden_size") or (recurrent[2] if recurrent else 0)
    shape: list[int | str] = [ROWS, 1, width] if attributes.get("layout", 0) else [1, ROWS, width]
    element = next((value.type.tensor_type.elem_type for value in graph.input), 1)
    made = {}
    for at, part in enumerate(STATES[node.op_type]):
        name, result = f"state.{index}.{part}", f"next_state.{index}.{part}"
        _set(node.input, FIRST_STATE + at, name)
        inner = node.output[1 + at] if len(node.output) > 1 + at else ""
        if not inner:
            inner = result
            _set(node.output, 1 + at, inner)
        else:
            graph.node.append(onnx.helper.make_node("Identity", [inner], [result], name=result))
        graph.input.append(onnx.helper.make_tensor_value_info(name, element, shape))
        graph.output.append(onnx.helper.make_tensor_value_info(result, element, shape))
        made[name] = (result, shape)
    return made


def _set(names: Any, position: int, name: str) -> None:
    names.extend([""] * (position + 1 - len(names)))
    names[position] = name


def _climbed(
    out: Path, feed: Mapping[str, Array], axes: Mapping[str, int], wanted: Mapping[str, Array],
    shorter: Mapping[str, Array], states: Mapping[str, tuple[str, list[int | str]]],
) -> float | None:  # fmt: skip
    """Feed the sequence step by step and compare; return the worst level, None for exact."""
    rows = {name: np.shape(array)[1 - (axes[name] > 1)] for name, array in feed.items() if name in axes}
    count = next(iter(rows.values()))
    held = {
        name: np.zeros([count if size == ROWS else int(size) for size in shape], np.float32)
        for name, (_, shape) in states.items()
    }
    found: dict[str, list[Array]] = {name: [] for name in wanted}
    for step in range(STEPS):
        at = {name: np.take(array, [step], axes[name]) if name in axes else array for name, array in feed.items()}
        made = outputs_of(out, at | held)
        held = {name: made[result] for name, (result, _) in states.items()}
        for name, parts in found.items():
            parts.append(made[name])
    levels = []
    for name, whole in wanted.items():
        grown = [
            axis for axis, pair in enumerate(zip(whole.shape, shorter[name].shape, strict=True)) if len({*pair}) > 1
        ]
        steps = np.concatenate(found[name], grown[0]) if grown else found[name][-1]
        result = compare(name, whole, steps, BUDGET_DB)
        if not result.passed:
            raise BudgetMissedError(
                f"step by step it computes something else: {result}",
                hint="something beside GRU, RNN and LSTM looks at several times: export one step from the framework",
            )
        levels.append(result.psnr_db)
    known = [level for level in levels if level is not None]
    return min(known) if known else None
