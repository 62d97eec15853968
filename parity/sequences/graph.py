"""A graph that can be stepped, and what a sequence file says of its inputs and outputs.

The runtime is behind `step`: ONNX Runtime here, the emulator of Sentis where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once

Feed = dict[str, Array]
Step = Callable[[Feed], Mapping[str, Array]]
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32}


@dataclass(frozen=True)
class Graph:
    """A graph that can be stepped.

    Attributes:
        name: of its file.
        inputs: input name to (dtype, sizes); a size that is free is None.
        outputs: names.
        step: run it once.
    """

    name: str
    inputs: dict[str, tuple[Any, tuple[int | None, ...]]]
    outputs: tuple[str, ...]
    step: Step


def open_graph(onnx: Path, optimisation: Any = "all") -> Graph:
    """Open a graph in ONNX Runtime.

    Raises:
        StageError: it is missing or cannot be loaded.
    """
    from converters.ort_session import open_session

    if not onnx.is_file():
        raise StageError(f"{onnx}: no such file", hint="give an .onnx file")
    session = open_session(onnx, optimisation, 1)
    outputs = tuple(value.name for value in session.get_outputs())
    inputs = {value.name: (_dtype(value.type), _sizes(value.shape)) for value in session.get_inputs()}

    def step(feed: Feed) -> Mapping[str, Array]:
        try:
            return dict(zip(outputs, session.run(outputs, feed), strict=True))
        except Exception as error:  # ONNX Runtime's errors share no base class
            first = str(error).strip().splitlines()[0]
            raise StageError(
                f"{onnx.name}: a step cannot be run: {first}",
                hint="compare chunk, context and fixed with the graph's inputs",
            ) from None

    return Graph(onnx.name, inputs, outputs, step)


def _dtype(kind: str) -> Any:
    return NUMPY.get(kind.removeprefix("tensor(").removesuffix(")"), np.float32)


def _sizes(shape: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in shape)


def compared(graph: Graph, spec: SequenceSpec) -> tuple[str, ...]:
    """Return the outputs that are compared."""
    return spec.outputs or tuple(name for name in graph.outputs if name not in spec.state.values())


def initial_states(graph: Graph, spec: SequenceSpec) -> Feed:
    """Return the states before the first step: zeros, free sizes taken as 1."""
    return {name: np.zeros([size or 1 for size in graph.inputs[name][1]], graph.inputs[name][0]) for name in spec.state}


def fixed_inputs(graph: Graph, spec: SequenceSpec) -> Feed:
    """Return the inputs that are the same in every step, in the types of the graph.

    Raises:
        StageError: values that are no numbers of that type.
    """
    found, faults = {}, []
    for name, value in spec.fixed.items():
        try:
            found[name] = np.asarray(value, graph.inputs[name][0])
        except (ValueError, TypeError, OverflowError):
            faults.append(f"fixed.{name}: found {value!r}, wanted numbers of type {np.dtype(graph.inputs[name][0])}")
    if faults:
        raise all_at_once(f"{spec.path}: not the inputs of {graph.name}:", faults, hint="mend [fixed]")
    return found


def check_graph(graph: Graph, spec: SequenceSpec) -> tuple[Any, tuple[int | None, ...]]:
    """Require that the graph has the inputs and outputs of the sequence file, and return its signal input.

    Raises:
        StageError: what is missing or left over, all at once; or sizes along the axis that do not fit.
    """
    wanted = {spec.input, *spec.state, *spec.fixed}
    lines = [f"input {name}: not in the graph" for name in wanted - graph.inputs.keys()]
    lines += [f"input {name}: not fed by the sequence file" for name in graph.inputs.keys() - wanted]
    told = {*spec.state.values(), *spec.outputs}
    lines += [f"output {name}: not in the graph" for name in told - set(graph.outputs)]
    if lines:
        hint = "name it under [signal], [state], [fixed] or outputs; `mlx-sentis graph info` lists the graph's"
        raise all_at_once(f"{graph.name}: not the graph of {spec.path.name}:", lines, hint=hint)
    if not compared(graph, spec):
        raise StageError(f"{graph.name}: no output is left to compare", hint="name one under outputs")
    return graph.inputs[spec.input]


def step_size(graph: Graph, spec: SequenceSpec) -> int | None:
    """Return how much of the signal one step of the graph takes, None where it is free."""
    sizes = graph.inputs[spec.input][1]
    return sizes[spec.axis] if -len(sizes) <= spec.axis < len(sizes) else None
