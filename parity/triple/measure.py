"""Measuring the table: each fixture goes through ONNX Runtime and Sentis, and every edge compares all outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.budgets import Budgets
from parity.edge_a import LEVELS, run_inputs
from parity.fixtures import read_fixture, read_inputs
from parity.triple.answers import NOT_PREDICTED, Answer, Measured, Predicted
from parity.triple.compared import compare_one, compare_outputs
from parity.triple.rows import NO_SENTIS, Disagreement, EdgeName, Row, Triple
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import StageError
from weights_bridge.sentis_dump import fixture_sha256

AS_WRITTEN = "off"  # edge B starts from the graph as it is written: what ONNX Runtime's optimiser does is edge A's
WITH_ORIGINAL: set[EdgeName] = {"A", "A∘B"}  # what the original computed is compared at these alone


@dataclass(frozen=True)
class Asked:
    """What to measure.

    Attributes:
        onnx: the graph.
        fixtures: name to npz file.
        edges: which of `A`, `B`, `A∘B`.
        sentis: package version to predict for, and that a dump must be of.
        measured: a dump; None for a prediction.
        whole_set: whether the fixtures are all that the dump may have.
    """

    onnx: Path
    fixtures: Mapping[str, Path]
    edges: Sequence[EdgeName]
    sentis: str
    measured: Measured | None = None
    whole_set: bool = False

    @functools.cached_property
    def sessions(self) -> dict[str, Any]:
        """ONNX Runtime's sessions by optimisation level, each opened once."""
        from converters.ort_session import open_session

        levels = LEVELS if "A" in self.edges else (AS_WRITTEN,)
        return {level: open_session(self.onnx, level) for level in levels}

    @functools.cached_property
    def predicted(self) -> Predicted:
        """The emulator, which imports once."""
        return Predicted(self.onnx, self.sentis)


def measure_triple(asked: Asked, budgets: Budgets, say: Callable[[str], None] = lambda text: None) -> Triple:
    """Measure the edges on every fixture.

    Args:
        asked: what.
        budgets: `edge_a_db`, `edge_b_db`, `edge_ab_db`, `emulator_db`.
        say: hears which fixture is run.

    Returns:
        The table; `steps` are left to `parity.triple.bisection`.

    Raises:
        StageError: no fixture, or one that cannot be read, or the graph cannot be loaded at all.
    """
    if not asked.fixtures:
        raise StageError("no fixtures to measure", hint="`mlx-sentis parity RUN --edge a` writes those of a run")
    triple = Triple(facts=_facts(asked, budgets))
    hashes: dict[str, str] = {}
    notes: dict[str, None] = {}
    for name, path in asked.fixtures.items():
        say(f"measuring {name}")
        inputs, original = read_fixture(path) if WITH_ORIGINAL & {*asked.edges} else (read_inputs(path), {})
        hashes[fixture_sha256(inputs)] = name
        runtime = _runtime(asked, inputs)
        if "A" in asked.edges:
            triple.rows.append(_edge_a(name, original, runtime, budgets.edge_a_db))
        if set(asked.edges) - {"A"}:
            _sentis_rows(triple, asked, budgets, name, (inputs, original), runtime[AS_WRITTEN], notes)
    if asked.measured is not None and asked.whole_set:
        triple.faults += asked.measured.unknown_fixtures(hashes)
    triple.rows.sort(key=lambda row: [*asked.edges].index(row.edge))
    triple.facts["notes"] = list(notes)
    return triple


def _facts(asked: Asked, budgets: Budgets) -> dict[str, Any]:
    used = {"A": "edge_a", "B": "edge_b", "A∘B": "edge_ab"}
    facts: dict[str, Any] = {
        "model": asked.onnx.name,
        "sentis": asked.sentis,
        "source": "predicted" if asked.measured is None else "measured",
        "budgets": {edge: budgets.provenance[used[edge]] for edge in asked.edges},
    }
    if asked.measured is not None:
        dump = asked.measured.dump
        facts["dump"] = {key: getattr(dump, key) for key in ("package", "version", "unity", "date", "device")}
    return facts


def _runtime(asked: Asked, inputs: Mapping[str, Array]) -> dict[str, Mapping[str, Array] | list[GateResult]]:
    """Return per optimisation level what ONNX Runtime computes, or why it does not."""
    return {level: run_inputs(session, inputs, asked.onnx.name) for level, session in asked.sessions.items()}


def _edge_a(
    name: str,
    original: Mapping[str, Array],
    runtime: Mapping[str, Mapping[str, Array] | list[GateResult]],
    budget_db: float,
) -> Row:
    """Return edge A on one fixture, both optimisation levels."""
    results: list[GateResult] = []
    for level, found in runtime.items():
        prefix = f"{level} / "
        if isinstance(found, list):
            results += [replace(fault, tensor=f"{prefix}{fault.tensor}") for fault in found]
        else:
            results += compare_outputs(original, found, budget_db, prefix)
    return Row("A", name, NO_SENTIS, budget_db, tuple(results))


def _sentis_rows(
    triple: Triple,
    asked: Asked,
    budgets: Budgets,
    name: str,
    fixture: tuple[Mapping[str, Array], Mapping[str, Array]],
    runtime: Mapping[str, Array] | list[GateResult],
    notes: dict[str, None],
) -> None:
    """Add edge B and edge A∘B of one fixture, for each answer there is."""
    inputs, original = fixture
    wanted = [*(original if isinstance(runtime, list) else runtime)]
    if asked.measured is not None:
        answers = asked.measured.answers(name, inputs, wanted)
    elif isinstance(runtime, list) and any(fault.reason == "dtype" for fault in runtime):
        answers = [Answer(asked.predicted.origin, faults=runtime)]  # the emulator casts: it would answer all the same
    else:
        answers = [asked.predicted.answer(inputs)]
    for answer in answers:
        notes.update(dict.fromkeys(answer.notes))
        references: dict[EdgeName, Any] = {"B": (runtime, budgets.edge_b_db), "A∘B": (original, budgets.edge_ab_db)}
        for edge, (reference, budget_db) in references.items():
            if edge in asked.edges:
                results = _against(reference, answer, budget_db)
                triple.rows.append(Row(edge, name, str(answer.origin), budget_db, tuple(results)))
        _keep_deviations(triple, answer)
        if answer.milliseconds:
            times = triple.facts.setdefault("milliseconds", {}).setdefault(answer.origin.backend, {})
            times[name] = list(answer.milliseconds)
    if asked.measured is not None and not isinstance(runtime, list):
        _check_emulator(triple, asked, budgets, name, inputs, runtime, answers)


def _keep_deviations(triple: Triple, answer: Answer) -> None:
    """Write down what the emulator changed; it is the same for every fixture of a graph."""
    keys = ("node", "op_type", "output", "rule", "what", "source", "confidence")
    if answer.deviations and not triple.facts.get("deviations"):
        triple.facts["deviations"] = [{key: getattr(one, key) for key in keys} for one in answer.deviations]


def _against(reference: Mapping[str, Array] | list[GateResult], answer: Answer, budget_db: float) -> list[GateResult]:
    """Compare an answer with one side; what is missing for a reason that is told already is not told twice."""
    if isinstance(reference, list):
        return [replace(fault, tensor=f"ONNX Runtime / {fault.tensor}") for fault in reference]
    faults = list(answer.faults)
    if faults and not answer.outputs:
        return faults
    told = {fault.where for fault in faults}
    kept = {name: array for name, array in reference.items() if name not in told}
    return faults + (compare_outputs(kept, answer.outputs, budget_db) if kept else [])


def _check_emulator(
    triple: Triple,
    asked: Asked,
    budgets: Budgets,
    name: str,
    inputs: Mapping[str, Array],
    runtime: Mapping[str, Array],
    answers: Sequence[Answer],
) -> None:
    """Hold the emulator against what the CPU backend computed; the GPU has arithmetic of its own."""
    triple.compared = triple.compared or 0
    expected = asked.predicted.answer(inputs)
    _keep_deviations(triple, expected)
    refused = next((fault for fault in expected.faults), None)
    for answer in answers:
        if answer.origin.backend != "CPU" or not answer.outputs:
            continue
        if refused is not None and refused.reason == NOT_PREDICTED:
            triple.facts.setdefault("not_predicted", refused.detail)
            continue
        if refused is not None:
            said = f"{refused.reason}: {refused.detail}"
            triple.disagreements.append(Disagreement("import", name, "", "imported and ran", said))
            continue
        for tensor, found in answer.outputs.items():
            if tensor in expected.outputs and tensor in runtime:
                triple.compared += 1
                triple.disagreements += _parted(name, tensor, runtime[tensor], found, expected.outputs[tensor], budgets)


def _parted(
    fixture: str, tensor: str, runtime: Array, measured: Array, expected: Array, budgets: Budgets
) -> list[Disagreement]:
    """Return where one output's prediction is not what was measured: in its numbers, or in the verdict they give."""
    between = compare_one(tensor, measured, expected, budgets.emulator_db)
    sides = [compare_one(tensor, runtime, side, budgets.edge_b_db) for side in (measured, expected)]
    if sides[0].passed != sides[1].passed:
        said = [f"{'pass' if one.passed else 'FAIL'} ({_level(one)})" for one in sides]
        return [Disagreement("verdict", fixture, tensor, *said, psnr_db=between.psnr_db)]
    if between.passed or between.reason == "nan" == sides[0].reason == sides[1].reason:
        return []
    said = [_level(one) for one in sides]
    return [Disagreement("numbers", fixture, tensor, *said, psnr_db=between.psnr_db)]


def _level(result: GateResult) -> str:
    return result.reason if result.psnr_db is None else f"{result.psnr_db:.1f} dB"
