"""Running the graph: ONNX Runtime for the stretches of nodes, numpy for the functions between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.emulator.graph import DTYPES, ELEMENTS, IR_VERSION, OPSET, Graph, Step
from parity.emulator.prediction import Throws
from weights_bridge.compare import Array
from weights_bridge.errors import StageError

UNFIT = (IndexError, KeyError, ValueError, TypeError, AttributeError, ZeroDivisionError, OverflowError, AssertionError)
INSIDE_BYTES = 4096  # constants up to here are written into the graph, larger ones are handed over where they lie


@dataclass
class Stage:
    """Steps that run together: all nodes of one session, or functions one after the other."""

    on_host: bool
    steps: list[Step] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    puts_out: list[str] = field(default_factory=list)
    session: Any = None


class Runner:
    """A graph, ready to run with one set of inputs after the other.

    Args:
        graph: what to run.
        outputs: the values that are wanted; everything they do not need is left out.
        threads: within one operator; None lets ONNX Runtime choose.
    """

    def __init__(self, graph: Graph, outputs: Sequence[str], threads: int | None = None) -> None:
        self.graph, self.threads = graph, threads
        self.outputs = list(outputs)
        needed = needed_values(graph, outputs)
        self.probes = [probe for probe in graph.probes if probe.of in needed]
        wanted = [*self.outputs, *(probe.value for probe in self.probes)]
        self.stages = stages_of(graph, wanted)
        self._last = {name: at for at, stage in enumerate(self.stages) for name in stage.reads}

    def run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, bool]]:
        """Return the outputs, and for each probe's value whether it happened.

        Raises:
            StageError: ONNX Runtime does not run it.
            Throws: Sentis would throw.
        """
        values: dict[str, Array] = dict(inputs)
        wanted = [*self.outputs, *(probe.value for probe in self.probes)]
        for at, stage in enumerate(self.stages):
            self._run(stage, values)
            for name in stage.reads:  # what nobody reads any more goes
                if self._last[name] == at and name not in wanted:
                    values.pop(name, None)
        found = {name: self._value(name, values) for name in wanted}
        told = {probe.value: bool(found[probe.value]) for probe in self.probes}
        return {name: found[name] for name in self.outputs}, told

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else self.graph.held[name]

    def _run(self, stage: Stage, values: dict[str, Array]) -> None:
        if stage.on_host:
            for step in stage.steps:
                given = [self._value(name, values) if name else None for name in step.inputs]
                try:
                    found = step.run(*given) if step.run else []
                except UNFIT as error:
                    said = str(error).strip().splitlines()[:1] or [type(error).__name__]
                    raise StageError(f"{step.label!r} does not run with these inputs: {said[0]}") from None
                for name, array in zip(step.outputs, found, strict=True):
                    values[name] = np.asarray(array, DTYPES[self.graph.kinds[name]])
            return
        if stage.session is None:
            stage.session = self._session(stage)
        try:
            found = stage.session.run(stage.puts_out, {name: values[name] for name in stage.reads})
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StageError(f"the emulator's graph does not run: {str(error).strip().splitlines()[0]}") from None
        values.update(zip(stage.puts_out, found, strict=True))

    def _session(self, stage: Stage) -> Any:
        import onnx
        import onnxruntime

        graph = onnx.GraphProto(name="sentis")
        made = {name for step in stage.steps for name in step.outputs}
        names = dict.fromkeys(name for step in stage.steps for name in step.inputs if name and name not in made)
        outside: dict[str, Any] = {}
        for name in names:
            if name in stage.reads:
                graph.input.append(onnx.helper.make_tensor_value_info(name, ELEMENTS[self.graph.kinds[name]], None))
            elif self.graph.held[name].nbytes <= INSIDE_BYTES:
                graph.initializer.append(onnx.numpy_helper.from_array(self.graph.held[name], name))
            else:
                outside[name] = self.graph.held[name]
                tensor = graph.initializer.add(name=name, dims=outside[name].shape)
                tensor.data_type, tensor.data_location = ELEMENTS[self.graph.kinds[name]], tensor.EXTERNAL
                tensor.external_data.add(key="location", value="handed over")
        graph.node.extend(step.node for step in stage.steps if step.node is not None)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in stage.puts_out)
        model = onnx.ModelProto(ir_version=IR_VERSION, graph=graph)
        model.opset_import.add(domain="", version=OPSET)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        if self.threads is not None:
            options.intra_op_num_threads = self.threads
        if outside:
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in outside.values()]
            options.add_external_initializers(list(outside), values)
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StageError(f"the emulator's graph is refused: {str(error).strip().splitlines()[0]}") from None


def needed_values(graph: Graph, outputs: Sequence[str]) -> set[str]:
    """Return every value that some values need, themselves included."""
    makers = {name: step for step in graph.steps for name in step.outputs if name}
    needed, waiting = set[str](), list(outputs)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if (step := makers.get(name)) is not None:
            waiting += filter(None, step.inputs)
    return needed


def stages_of(graph: Graph, outputs: Sequence[str]) -> list[Stage]:
    """Cut a graph into stages: even ones of nodes, odd ones of functions, as few as possible."""
    needed = needed_values(graph, outputs)
    steps = [step for step in graph.steps if needed.intersection(step.outputs)]
    level: dict[str, int] = {}
    for step in steps:
        before = max((level.get(name, 0) for name in step.inputs if name), default=0)
        on_host = step.node is None
        at = before + (before % 2 != on_host)
        level |= dict.fromkeys(filter(None, step.outputs), at)
    stages = [Stage(bool(at % 2)) for at in range(max(level.values(), default=0) + 1)]
    for step in steps:
        stages[level[next(name for name in step.outputs if name)]].steps.append(step)
    for at, stage in enumerate(stages):
        read = dict.fromkeys(name for step in stage.steps for name in step.inputs if name)
        made = {name for step in stage.steps for name in step.outputs}
        stage.reads = [name for name in read if name not in made and name not in graph.held]
        later = {name for other in stages[at + 1 :] for step in other.steps for name in step.inputs} | set(outputs)
        stage.puts_out = [name for step in stage.steps for name in step.outputs if name in later]
    return [stage for stage in stages if stage.steps]


def fed(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs as the caller in Unity hands them over: float32 or int32.

    Raises:
        StageError: an input that is missing or unknown.
        Throws: a number where the other kind is wanted.
    """
    from parity.emulator.node import as_kind

    missing, extra = sorted(set(graph.elements) - set(inputs)), sorted(set(inputs) - set(graph.elements))
    if missing or extra:
        said = "; ".join(
            f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("extra", extra)) if names
        )
        raise StageError(f"the inputs are not those of the graph: {said}", hint=f"wanted: {', '.join(graph.elements)}")
    found = {}
    for name, kind in graph.elements.items():
        array = as_kind(np.asarray(inputs[name]))
        if array.dtype != DTYPES[kind]:
            raise Throws(f"input {name!r} is {kind} in the model, {inputs[name].dtype} was given")
        found[name] = np.ascontiguousarray(array).reshape(array.shape)  # a scalar stays of rank 0
    return found
