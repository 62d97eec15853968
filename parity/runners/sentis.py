"""Sentis as a runner beside the others: the emulator, and where its numbers part from ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters import divergence
from converters.divergence import Divergence
from parity.emulator.emulation import Emulation
from parity.emulator.node import as_kind
from parity.emulator.prediction import Deviation, Prediction
from parity.emulator.running import Runner, fed, needed_values
from weights_bridge.compare import Array, GateResult, compare


@dataclass(frozen=True)
class EdgeB:
    """What was predicted, against ONNX Runtime.

    Attributes:
        prediction: of Sentis.
        wanted: output to array of ONNX Runtime, as Sentis would hold it.
        results: one per output; one that is not predicted fails with its reason.
        starts: per output below the budget the first deviation on its way; None where no rule says so.
    """

    prediction: Prediction
    wanted: dict[str, Array]
    results: list[GateResult]
    starts: dict[str, Deviation | None]


def predicted_edge_b(model: Path, inputs: Mapping[str, Array], budget_db: float, version: str = "2.6") -> EdgeB:
    """Return what Sentis is predicted to make of a model against what ONNX Runtime makes of it.

    Args:
        model: an ONNX file.
        inputs: one array per graph input, as the model declares them.
        budget_db: the least PSNR in dB that passes.
        version: of the package.

    Raises:
        StageError: the file is unreadable, or ONNX Runtime refuses it.
    """
    emulation = Emulation(model, version)
    prediction = emulation.predict(inputs)
    wanted = onnx_outputs(model, inputs)
    results, starts = [], {}
    for name, reference in wanted.items():
        if name not in prediction.outputs:
            reason = prediction.unpredicted.get(name, prediction.reason)
            results.append(GateResult(name, False, prediction.verdict, budget=budget_db, where=name, detail=reason))
            continue
        result = compare(name, reference, prediction.outputs[name], budget_db, where=name)
        if not result.passed and result.reason == "nan" and _same(reference, prediction.outputs[name]):
            result = GateResult(name, True, "exact", 0.0, 0.0, None, budget_db, None, name)
        results.append(result)
        if not result.passed:
            starts[name] = next(iter(on_the_way(emulation, name, prediction.deviations)), None)
    return EdgeB(prediction, wanted, results, starts)


def first_divergence(
    model: Path,
    inputs: Mapping[str, Array],
    budget_db: float,
    version: str = "2.6",
    compared: divergence.Compared | None = None,
) -> Divergence | None:
    """Return the first tensor of a model that Sentis is predicted to compute otherwise than ONNX Runtime.

    Inner tensors are compared, as many in one run as a bisection needs; None where all agree.

    Args:
        model: an ONNX file.
        inputs: one array per graph input.
        budget_db: the least PSNR in dB that agrees.
        version: of the package.
        compared: compares one tensor, ONNX Runtime's in its own type; None for float32 and int32 on both sides, in dB.

    Raises:
        StageError: the file is unreadable, or ONNX Runtime refuses it.
    """
    given = {name: np.asarray(array) for name, array in inputs.items()}
    emulation = Emulation(model, version)
    made = emulation.case_for(given).made
    if made is None:
        return None
    nodes = emulation.skeleton.model.graph.node
    shared = [(name, node) for node in nodes for name in node.output if name in made.graph.kinds]

    def wanted_of(names: list[str]) -> dict[str, Array]:
        found = divergence.values_of(model, names, given)
        if compared is not None:
            return found
        return {name: as_kind(np.asarray(array)) for name, array in found.items()}

    def found_of(names: list[str]) -> dict[str, Array]:
        graph = made.graph
        held = {name: graph.held[name] for name in names if name in graph.held}
        computed = [name for name in names if name not in held]
        return held | Runner(graph, computed).run(fed(graph, given))[0] if computed else held

    return divergence.search(shared, wanted_of, found_of, budget_db, compared)


def _same(reference: Array, found: Array) -> bool:
    return bool(np.array_equal(reference, found, equal_nan=True))


def onnx_outputs(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return ONNX Runtime's outputs, converted to float32 or int32 as a comparison with Sentis wants them."""
    from converters.ort_session import open_session
    from weights_bridge.errors import StageError

    session = open_session(model)
    names = [value.name for value in session.get_outputs()]
    try:
        found = session.run(names, dict(inputs))
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise StageError(f"{model}: ONNX Runtime cannot run it: {str(error).strip().splitlines()[0]}") from None
    return {name: as_kind(np.asarray(array)) for name, array in zip(names, found, strict=True)}


def on_the_way(emulation: Emulation, output: str, deviations: list[Deviation]) -> list[Deviation]:
    """Return the deviations that an output depends on, in the order of the graph."""
    if emulation.made is None:
        return []
    graph = emulation.made.graph
    needed = needed_values(graph, [output])
    return [one for one in deviations if one.output in needed]
