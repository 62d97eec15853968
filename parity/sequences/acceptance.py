"""The verdict on a sequence: every step against the full reference, the first that differs, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.sequences.graph import Graph, check_graph, compared, initial_states, open_graph, step_size
from parity.sequences.levels import agree, first_below, series, values, verdict
from parity.sequences.loop import NoContext, crossings, drive, faults
from parity.sequences.reference import load_reference
from parity.sequences.signal import with_rank
from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array, GateReport, GateResult

LEVELS = ("off", "all")
RECORDED = "recorded"


@dataclass
class Side:
    """One run of the sequence that is held against the reference.

    Attributes:
        name: `off`, `all`, `recorded`, `Sentis 2.6, predicted`.
        outputs: output name to [steps, …].
        graph: what gives other numbers when its loop is changed; None where nothing can be tried.
        recorded: whether the loop was somebody else's.
    """

    name: str
    outputs: Mapping[str, Array]
    graph: Graph | None = None
    recorded: bool = False


@dataclass
class Measured:
    """A sequence's report, and what the picture shows."""

    report: GateReport
    spec: SequenceSpec
    signal: Array
    reference: Mapping[str, Array]
    budget_db: float
    sides: list[Side] = field(default_factory=list)


def measure_sequence(
    onnx: Path,
    spec: SequenceSpec,
    budget_db: float,
    *,
    recorded: Mapping[str, Array] | None = None,
    heard: Array | None = None,
    sentis: str | None = None,
) -> Measured:
    """Drive a graph over a whole signal and compare every step with the full reference.

    Args:
        onnx: the graph of one step.
        spec: how it is driven, and the reference.
        budget_db: what every step must reach.
        recorded: outputs [steps, …] of another loop around the same graph, for instance from Unity; judged instead of
            our own loop, which then only explains.
        heard: the signal that the other loop was fed, where its recording holds it.
        sentis: a version of the package to predict as well.

    Returns:
        One result per side and output; a miss names the first step that differs and, where one of the known faults of
        such loops gives the same numbers, that fault as its reason.

    Raises:
        StageError: graph, signal and reference do not belong together, or cannot be read.
    """
    graph = open_graph(onnx)
    _, sizes = check_graph(graph, spec)
    signal, reference = load_reference(spec, compared(graph, spec))
    measured = Measured(GateReport("sequence"), spec, signal, reference, budget_db)
    measured.report.facts |= _facts(onnx, spec, with_rank(signal, len(sizes), spec), budget_db)
    inner = step_size(graph, spec) == spec.chunk and spec.context > 0
    driven = replace(spec, context=0) if inner else spec
    if recorded is not None:
        measured.report.results += _same_signal(heard, signal)
        shaped = {name: _in_steps(np.asarray(array), reference.get(name)) for name, array in recorded.items()}
        measured.sides.append(Side(RECORDED, shaped, None if inner else graph, recorded=True))
    else:
        for level in LEVELS:
            one = open_graph(onnx, level)
            measured.sides.append(Side(level, drive(one, driven, signal), None if inner else one))
        if sentis is not None:
            _predict(measured, onnx, driven, sentis)
    for side in measured.sides:
        measured.report.results += [_reasoned(measured, side, result, inner) for result in _judge(measured, side)]
    measured.report.facts["series"] = {side.name: series(side.outputs, reference) for side in measured.sides}
    measured.report.facts["reference_values"] = {name: values(found) for name, found in reference.items()}
    return measured


def _in_steps(found: Array, wanted: Array | None) -> Array:
    """Return raw numbers, one after the other, as steps of the reference's size where that goes up."""
    if wanted is None or found.ndim != 1 or wanted.size == 0 or found.size % wanted[0].size:
        return found
    return found.reshape(-1, wanted[0].size)


def _same_signal(heard: Array | None, signal: Array) -> list[GateResult]:
    """Return a failed result where a recording was made of another signal; nothing is known where it holds none."""
    if heard is None or (heard.shape == signal.shape and np.array_equal(heard, signal)):
        return []
    detail = f"the recording's in::signal has {heard.size} values, the reference's {signal.size}; they differ"
    return [GateResult(f"{RECORDED} / signal", False, "other signal", where="in::signal", detail=detail)]


def _facts(onnx: Path, spec: SequenceSpec, signal: Array, budget_db: float) -> dict[str, Any]:
    assert spec.reference is not None
    length = signal.shape[spec.axis]
    return {
        "model": onnx.name,
        "sequence": spec.path.name,
        "reference": spec.reference.name,
        "chunk": spec.chunk,
        "context": spec.context,
        "state": dict(spec.state),
        "values": length,
        "seconds": length / spec.rate if spec.rate else None,
        "budget_db": budget_db,
    }


class _StoppedError(Exception):
    """A step that the emulator does not predict."""


def _predict(measured: Measured, onnx: Path, spec: SequenceSpec, version: str) -> None:
    """Add what Sentis is predicted to compute, its own states carried; what is not predicted is no verdict."""
    from parity.emulator.emulation import Emulation

    said: dict[str, Any] = {"version": version, "verdict": "predicted", "reason": ""}
    measured.report.facts["predicted"] = said
    name, own, emulation = f"Sentis {version}, predicted", open_graph(onnx), Emulation(onnx, version)
    needed = {*compared(own, spec), *spec.state.values()}

    def step(feed: dict[str, Array]) -> Mapping[str, Array]:
        found = emulation.predict(feed)
        if found.verdict != "predicted" or needed - found.outputs.keys():
            reason = found.reason or "; ".join(f"{name}: {why}" for name, why in sorted(found.unpredicted.items()))
            said.update(verdict="import fails" if found.verdict == "import fails" else "not predicted", reason=reason)
            raise _StoppedError(reason)
        said["deviations"] = [str(one) for one in found.deviations[:20]]
        return found.outputs

    try:
        outputs = drive(Graph(own.name, own.inputs, own.outputs, step), spec, measured.signal)
    except _StoppedError as stopped:
        if said["verdict"] == "import fails":
            failed = GateResult(name, False, "import fails", where=onnx.name, detail=str(stopped))
            measured.report.results.append(failed)
        return
    measured.sides.append(Side(name, outputs))


def _judge(measured: Measured, side: Side) -> Iterator[tuple[str, GateResult]]:
    for name in sorted(set(measured.reference) | set(side.outputs)):
        label, budget_db = f"{side.name} / {name}", measured.budget_db
        if name not in side.outputs or name not in measured.reference:
            reason = "missing" if name in measured.reference else "extra"
            yield name, GateResult(label, False, reason, budget=budget_db, where=name)
        else:
            found = np.asarray(side.outputs[name])
            yield name, verdict(label, measured.reference[name], found, measured.spec, budget_db)


def _reasoned(measured: Measured, side: Side, named: tuple[str, GateResult], inner: bool) -> GateResult:
    """Return a result; a miss with the fault that gives these very numbers as its reason, where there is one."""
    name, result = named
    spec = measured.spec
    if result.passed or result.reason != "below budget":
        return result
    if inner and not side.recorded:
        detail = (
            f"the graph takes {spec.chunk} values, a step of the full model {spec.context} + {spec.chunk}: the inner "
            f"network without its context; {result.detail}"
        )
        return replace(result, reason=NoContext().reason, detail=detail)
    if side.graph is None:
        return result
    reason, why = _explanation(measured, side, side.graph, name)
    return replace(result, reason=reason or result.reason, detail=f"{result.detail}; {why}")


def _explanation(measured: Measured, side: Side, graph: Graph, name: str) -> tuple[str, str]:
    """Return the fault that explains a miss and how it is known; no fault, and what was tried."""
    spec, signal, budget_db = measured.spec, measured.signal, measured.budget_db
    found, wanted = np.asarray(side.outputs[name]), measured.reference[name]
    initial = initial_states(graph, spec)
    if not side.recorded:  # the sequence file itself may be wrong
        for loop in crossings(spec, initial):
            if agree(drive(graph, spec, signal, loop)[name], wanted, budget_db):
                pairs = ", ".join(f"{given} is fed {spec.state[of]}" for given, of in loop.to.items())
                return loop.reason, f"the reference agrees where {pairs}"
    tried = []
    for loop in faults(spec, initial, first_below(found, wanted, budget_db)):
        tried.append(loop.reason)
        if agree(drive(graph, spec, signal, loop)[name], found, budget_db):
            if side.recorded:
                return loop.reason, "our loop with this fault gives the same numbers"
            return loop.reason, "a loop with this fault gives the same numbers: the graph itself makes no use of it"
    return "", f"tried without an explanation: {', '.join(dict.fromkeys(tried)) or 'nothing'}"
