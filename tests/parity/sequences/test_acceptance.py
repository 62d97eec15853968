"""Sequences: the whole input against the full model; each fault of a loop fails with a reason of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sequences import CONTEXT, Made, weights, write_graph

from parity.sequences.acceptance import Measured, measure_sequence
from parity.sequences.graph import open_graph
from parity.sequences.levels import step_levels
from parity.sequences.loop import Crossed, Loop, NoContext, NoState, Reset, drive
from parity.sequences.spec import read_spec
from weights_bridge.compare import GateResult
from weights_bridge.errors import StageError

BUDGET = 90.0


def measured(made: Made, **changes: Any) -> Measured:
    graph, spec = changes.pop("onnx", made.onnx), changes.pop("spec", made.spec)
    return measure_sequence(graph, read_spec(spec), BUDGET, **changes)


def recorded(made: Made, loop: Loop) -> GateResult:
    """Return the verdict on what a faulty loop around the right graph gives."""
    outputs = drive(open_graph(made.onnx), read_spec(made.spec), made.signal, loop)
    report = measured(made, recorded=outputs).report
    assert len(report.results) == 1
    return report.results[0]


def test_the_right_loop_around_the_right_graph_passes_in_every_step(made: Made) -> None:
    found = measured(made)
    assert found.report.passed
    assert [one.tensor for one in found.report.results] == ["off / y", "all / y"]
    assert all(one.detail == "30 steps" and (one.psnr_db or 0) > 120 for one in found.report.results)
    assert len(found.report.facts["series"]["all"]["y"]["db"]) == 30
    assert found.report.facts["seconds"] == 3.0


@pytest.mark.parametrize(
    "loop, first",
    [
        (NoContext(), "first at step 1 (0.10 s)"),
        (NoState(), "first at step 1 (0.10 s)"),
        (Reset(at=7), "first at step 7 (0.70 s)"),
        (Reset(at=4, again=True), "first at step 4 (0.40 s)"),
        (Crossed(to={"h": "c", "c": "h"}), "first at step 1 (0.10 s)"),
    ],
)
def test_each_fault_of_a_recorded_loop_fails_with_its_own_reason_and_its_first_step(
    made: Made, loop: Loop, first: str
) -> None:
    assert recorded(made, Loop()).passed
    result = recorded(made, loop)
    assert (result.passed, result.reason, result.where) == (False, loop.reason, first)
    assert "our loop with this fault gives the same numbers" in result.detail


def test_reasons_are_told_apart() -> None:
    reasons = {loop.reason for loop in (NoContext(), NoState(), Reset(), Crossed())}
    assert reasons == {"context dropped", "state not carried", "state reset", "states crossed"}


def test_a_fault_that_nobody_knows_is_below_the_budget_and_says_what_was_tried(made: Made) -> None:
    outputs = drive(open_graph(made.onnx), read_spec(made.spec), made.signal)
    outputs["y"][12] += 0.1
    result = measured(made, recorded=outputs).report.results[0]
    assert (result.reason, result.where) == ("below budget", "first at step 12 (1.20 s)")
    assert "1 of 30 steps below the budget, the worst step 12" in result.detail
    assert "tried without an explanation: context dropped, state not carried, state reset" in result.detail


def test_the_inner_network_agrees_in_its_first_step_and_fails_the_sequence(made: Made) -> None:
    inner = {name: array[CONTEXT:] if name[0] == "W" else array for name, array in weights().items()}
    graph = write_graph(made.folder / "inner.onnx", inner, size=8)
    found = measured(made, onnx=graph)
    first = step_levels(made.reference, found.sides[0].outputs["y"])[0]
    assert first is None or first > 120  # nothing stands before the first step: alone it proves nothing
    assert {one.reason for one in found.report.failures} == {"context dropped"} and not found.report.passed
    assert found.report.failures[0].where == "first at step 1 (0.10 s)"
    assert "the graph takes 8 values, a step of the full model 4 + 8" in found.report.failures[0].detail


@pytest.mark.parametrize(
    "names, reason", [(("Wy", "Wh", "Wc"), "context dropped"), (("Uy", "Uh", "Uc", "Vh", "Vc"), "state not carried")]
)
def test_a_graph_that_makes_no_use_of_context_or_state_is_found_by_its_own_loop(
    made: Made, names: tuple[str, ...], reason: str
) -> None:
    given = weights()
    for name in names:
        given[name] = given[name].copy()
        given[name][: CONTEXT if name[0] == "W" else None] = 0
    graph = write_graph(made.folder / "deaf.onnx", given)
    failures = measured(made, onnx=graph).report.failures
    assert [one.reason for one in failures] == [reason, reason]
    assert "the graph itself makes no use of it" in failures[0].detail


def test_states_that_the_sequence_file_crosses_are_uncrossed_in_the_report(
    made: Made, respelled: Callable[..., Path]
) -> None:
    crossed = respelled('h = "hN"\nc = "cN"', 'h = "cN"\nc = "hN"')
    result = measured(made, spec=crossed).report.failures[0]
    assert result.reason == "states crossed"
    assert "the reference agrees where h is fed hN, c is fed cN" in result.detail


def test_another_graph_is_told_from_a_faulty_loop(made: Made) -> None:
    graph = write_graph(made.folder / "other.onnx", weights(seed=6))
    result = measured(made, onnx=graph).report.failures[0]
    assert result.reason == "below budget" and result.where == "first at step 0 (0.00 s)"
    assert "tried without an explanation" in result.detail


@pytest.mark.parametrize(
    "change, reason, where",
    [
        (lambda y: {"y": y[:29]}, "length", "step 29"),
        (lambda y: {"y": np.concatenate([y, y], axis=1)}, "shape", "step 0"),
        (lambda y: {"y": np.where(np.arange(30)[:, None] == 3, np.nan, y)}, "nan", "step 3 (0.30 s)"),
        (lambda y: {"y": y[:0]}, "nothing compared", ""),
        (lambda y: {"z": y, "y": y}, "extra", "z"),
        (lambda y: {"z": y}, "missing", "y"),
    ],
)
def test_recordings_that_do_not_fit_fail_with_their_own_reason(
    made: Made, change: Any, reason: str, where: str
) -> None:
    failures = measured(made, recorded=change(made.reference)).report.failures
    assert [one.reason for one in failures if one.reason == reason] == [reason]
    assert next(one for one in failures if one.reason == reason).where == where


def test_sentis_is_predicted_with_its_own_states_and_named_as_predicted(made: Made) -> None:
    found = measured(made, sentis="2.6")
    assert found.report.facts["predicted"]["verdict"] == "predicted"
    assert [side.name for side in found.sides] == ["off", "all", "Sentis 2.6, predicted"]
    result = found.report.results[-1]
    assert result.tensor == "Sentis 2.6, predicted / y" and result.passed and (result.psnr_db or 0) > BUDGET


def test_a_graph_that_sentis_does_not_import_fails_for_it_alone(made: Made) -> None:
    import onnx

    model = onnx.load(made.onnx)
    model.graph.node.append(onnx.helper.make_node("Det", ["square"], ["det"]))
    model.graph.node.append(onnx.helper.make_node("Add", ["y0", "det"], ["y"]))
    next(node for node in model.graph.node if list(node.output) == ["y"] and node.op_type == "Sigmoid").output[0] = "y0"
    zeros = onnx.numpy_helper.from_array(np.zeros((1, 1, 2, 2), np.float32), "square")
    model.graph.initializer.append(zeros)
    graph = made.folder / "det.onnx"
    onnx.save(model, graph)
    found = measured(made, onnx=graph, sentis="2.6")
    assert {one.tensor: one.reason for one in found.report.failures} == {"Sentis 2.6, predicted": "import fails"}


def test_a_silent_reference_has_no_level(made: Made) -> None:
    np.savez(made.folder / "reference.npz", **{"in::signal": made.signal, "out::y": np.zeros((30, 1))})  # pyright: ignore
    failures = measured(made).report.failures
    assert {one.reason for one in failures} == {"reference is zero"}


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('input = "x"', 'input = "audio"', "input audio: not in the graph"),
        ('c = "cN"\n', "", "input c: not fed by the sequence file"),
        ('"cN"', '"cM"', "output cM: not in the graph"),
        ("chunk = 8", "chunk = 6", "a step cannot be run"),
        ("chunk = 8", "chunk = 900", "no whole step"),
    ],
)
def test_a_sequence_file_of_another_graph_is_refused_by_name(
    made: Made, respelled: Callable[..., Path], old: str, new: str, said: str
) -> None:
    spec = respelled(old, new, "rate = 80", 'rate = 80\ntail = "drop"')
    with pytest.raises(StageError, match=said):
        measured(made, spec=spec)


def test_an_output_whose_size_changes_from_step_to_step_is_refused_by_name(made: Made) -> None:
    given, sizes = open_graph(made.onnx), iter(range(1, 99))
    graph = replace(given, step=lambda feed: {**given.step(feed), "y": np.zeros((1, next(sizes)), np.float32)})
    with pytest.raises(StageError, match=r"output y: found sizes \[1, 1\] and \[1, 2\], wanted the same"):
        drive(graph, read_spec(made.spec), made.signal)


def test_the_last_step_is_filled_up_or_dropped_as_the_file_says(made: Made, respelled: Callable[..., Path]) -> None:
    short = made.signal[:-3]
    spec = read_spec(made.spec)
    graph = open_graph(made.onnx)
    assert len(drive(graph, spec, short)["y"]) == 30
    assert len(drive(graph, read_spec(respelled("rate = 80", 'tail = "drop"')), short)["y"]) == 29


def test_a_context_longer_than_a_step_reaches_back_over_several(made: Made, respelled: Callable[..., Path]) -> None:
    spec = read_spec(respelled("chunk = 8", "chunk = 3", "context = 4", "context = 9"))
    seen: list[np.ndarray] = []
    graph = open_graph(made.onnx)

    def step(feed: dict[str, np.ndarray]) -> Any:
        seen.append(feed["x"][0])
        return graph.step(feed)

    drive(type(graph)(graph.name, graph.inputs, graph.outputs, step), spec, made.signal[:15])
    padded = np.concatenate([np.zeros(9, np.float32), made.signal[:15]])
    for at, fed in enumerate(seen):
        assert np.array_equal(fed, padded[3 * at : 3 * at + 12])


def test_a_steps_level_is_against_the_peak_of_the_whole_sequence_and_exact_steps_have_none() -> None:
    reference = np.array([[0.01], [1.0], [-0.5]])
    found = reference + np.array([[1e-3], [-1e-3], [0]])
    assert step_levels(reference, found) == [pytest.approx(60), pytest.approx(60), None]
