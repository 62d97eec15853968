"""int64 constants outside int32, saturated.

Why: Sentis has int32 only and saturates on import; doing it in the file makes ONNX Runtime compute what Sentis will.
For slice ends (`to the end`) nothing changes. Does not fire on a constant that arithmetic reads (Add, Mul, Equal,
Where, Gather indices, …): there a clamped number is another number, which the file must not hide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from converters.passes.base import Context, Outcome, Pass

if TYPE_CHECKING:
    import onnx

INT64 = 7  # TensorProto.INT64
LOW, HIGH = -(2**31), 2**31 - 1
CARRIERS = {"Concat", "Identity", "Reshape", "Squeeze", "Unsqueeze"}  # its first input, unchanged
BOUNDS_OF = {"Slice": (1, 2)}  # inputs that ONNX clamps to the axis by definition: starts and ends


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Saturate constants that only ever serve as bounds of a Slice."""
    import onnx

    outcome = Outcome()
    graph = model.graph
    named = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            named += [(node.output[0], a.t) for a in node.attribute if a.name == "value" and a.HasField("t")]
    for name, tensor in named:
        if tensor.data_type != onnx.TensorProto.INT64 or tensor.data_location == tensor.EXTERNAL:
            continue
        try:
            values = onnx.numpy_helper.to_array(tensor)
        except ValueError:
            outcome.left[name] = "its data does not fit its shape"
            continue
        clamped = np.clip(values, LOW, HIGH)
        if np.array_equal(values, clamped):
            continue
        if why := _refusal(graph, name):
            outcome.left[name] = why
            continue
        original = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(clamped, original))
        outcome.changed += 1
    return outcome


def _refusal(graph: onnx.GraphProto, name: str) -> str:
    """Return what computes with a value, followed through operators that only carry it; empty for nothing."""
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return "the model has subgraphs, which may read it"
    outputs = {value.name for value in graph.output}
    carried, waiting = {name}, [name]
    while waiting:
        current = waiting.pop()
        if current in outputs:
            return "it reaches an output of the model"
        for node in graph.node:
            for position in (p for p, given in enumerate(node.input) if given == current):
                if _carries(node, position):
                    waiting += [output for output in node.output if output not in carried]
                    carried.update(node.output)
                elif position not in BOUNDS_OF.get(node.op_type, ()):
                    return f"{node.op_type} {node.name or node.output[0]!r} computes with it"
    return ""


def _carries(node: onnx.NodeProto, position: int) -> bool:
    if node.op_type == "Cast":  # to int32 a sentinel wraps to -1, to float it is rounded
        return any(attribute.name == "to" and attribute.i == INT64 for attribute in node.attribute)
    return node.op_type in CARRIERS and (position == 0 or node.op_type == "Concat")


PASS = Pass("clamp_int64", "Sentis has int32 only and saturates int64 constants on import", ("INT64.RANGE",), run)
