"""Constants that the optimiser makes of several layers in a row: the numbers of the layer that is left.

A row of linear layers is one linear layer. What it becomes is measured on the row itself: a Dense on zeros and on the
unit matrix, what stands around a Conv on zeros and ones per channel. So no fusion's formula is written down twice; the
optimiser's own rounding, which was not read, may differ in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from parity.emulator.graph import Graph, Step
from weights_bridge.compare import Array

if TYPE_CHECKING:
    from parity.emulator.selection import Fold


def hold_folded(graph: Graph, fold: Fold) -> bool:
    """Write one layer in the place of a row, and hold its constants under the names that the selection gives them.

    Args:
        graph: what is run; changed.
        fold: the row.

    Returns:
        False where the row is not in the graph as it is described; then nothing is changed.
    """
    steps = [step for step in graph.steps if step.label in fold.nodes]
    kept = [step for step in steps if step.label == fold.activation]
    steps = [step for step in steps if step.label != fold.activation]
    end = _end(steps, kept, fold.output)
    makers = {name for step in steps for name in step.outputs}
    if end is None or end not in makers or fold.x in makers or any(step.node is None for step in steps):
        return False
    made = _conv(graph, fold, steps, end) if fold.op == "Conv" else _dense(graph, fold, steps, end)
    if made is None:
        return False
    at = graph.steps.index(steps[-1])
    gone = set(map(id, steps))
    graph.steps[at + 1 : at + 1] = made
    graph.steps = [step for step in graph.steps if id(step) not in gone]
    return True


def _end(steps: Sequence[Step], kept: Sequence[Step], output: str) -> str | None:
    """Return the value in front of the activation, or the row's output without one."""
    if not kept:
        return output
    made = {name for step in steps for name in step.outputs}
    return next((name for step in kept for name in step.inputs if name in made), None)


def _run(graph: Graph, steps: Sequence[Step], begin: str, end: str, values: Array) -> Array:
    """Compute a part of a graph on other numbers."""
    from parity.emulator.running import Runner

    if begin == end:
        return values
    part = Graph(steps=list(steps), kinds=graph.kinds, held=graph.held)
    return Runner(part, [end]).run({begin: values})[0][end]


def _dense(graph: Graph, fold: Fold, steps: Sequence[Step], end: str) -> list[Step] | None:
    """F(0) is the bias, F(1) − F(0) the weights."""
    rows, columns = fold.weight_sizes
    bias = _run(graph, steps, fold.x, end, np.zeros((1, rows), np.float32)).reshape(columns)
    if fold.weight not in graph.held:
        both = _run(graph, steps, fold.x, end, np.eye(rows, dtype=np.float32)).reshape(rows, columns)
        graph.hold(fold.weight, np.ascontiguousarray(both - bias, np.float32))
    graph.hold(fold.bias, bias)
    product = f"{end}:product"
    graph.kinds[product] = "float"
    return [
        _node("MatMul", [fold.x, fold.weight], product, fold.output),
        _node("Add", [product, fold.bias], end, fold.output),
    ]


def _node(op: str, inputs: list[str], output: str, label: str) -> Step:
    import onnx

    return Step(inputs, [output], onnx.helper.make_node(op, inputs, [output]), None, label)


def _conv(graph: Graph, fold: Fold, steps: Sequence[Step], end: str) -> list[Step] | None:
    """Before the kernel stands a factor at most, behind it a factor and an offset per channel."""
    import onnx

    found = [step for step in steps if step.node is not None and step.node.op_type == "Conv"]
    if len(found) != 1 or found[0].inputs[1] not in graph.held:
        return None
    (step,) = found
    assert step.node is not None
    at = list(map(id, steps)).index(id(step))
    kernel = graph.held[step.inputs[1]]
    channels, rank = kernel.shape[0], kernel.ndim
    point = (1, channels, *[1] * (rank - 2))
    behind = [
        _run(graph, steps[at + 1 :], step.outputs[0], end, np.full(point, value, np.float32)).reshape(channels)
        for value in (0, 1)
    ]
    given = np.ones((1, 1, *[1] * (rank - 2)), np.float32)
    before = _run(graph, steps[:at], fold.x, step.inputs[0], given).reshape(-1)[0]
    offset, factor = behind[0], behind[1] - behind[0]
    own = graph.held[step.inputs[2]] if len(step.inputs) > 2 and step.inputs[2] else np.zeros(channels, np.float32)
    bias = own * factor + offset
    if fold.weight not in graph.held:
        graph.hold(fold.weight, (kernel * (factor * before).reshape(-1, *[1] * (rank - 1))).astype(np.float32))
    inputs = [fold.x, fold.weight]
    if fold.bias_given or bias.any():
        graph.hold(fold.bias, bias.astype(np.float32))
        inputs.append(fold.bias)
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    del node.input[:], node.output[:]
    node.input.extend(inputs)
    node.output.append(end)
    return [Step(inputs, [end], node, None, fold.output)]
