"""The report: what was measured, what it came to, what was not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parity.plots import depths, moving_average, plot_error_by_layer, plot_loss
from parity.report import axes_table, verdict_table, write_report
from parity.tables import table
from weights_bridge.compare import GateReport, GateResult
from weights_bridge.files import read_json, write_json, write_jsonl
from weights_bridge.run_folder import RunFolder

PNG = b"\x89PNG\r\n\x1a\n"


def result(tensor: str, db: float, budget: float, where: str = "") -> GateResult:
    passed = db >= budget
    reason = "within budget" if passed else "below budget"
    return GateResult(tensor, passed, reason, 0.1, 0.1, db, budget, db, where)


def axis(right: int, of: int) -> dict[str, Any]:
    return {"right": right, "of": of, "share": right / of, "low": 0.1, "high": 0.9}


def make_run(root: Path, *, edge_a_db: float = 128.6, tuned: bool = True) -> RunFolder:
    run = RunFolder(root)
    layers = {f"layer {i}": 140.0 - i for i in range(3)}
    a0 = GateReport("a0", [result("forward row 0 logits", 131.2, 90), result("backward layers.0.lora_A", 99.5, 75)])
    a0.facts["error_by_layer"] = {"A0 row 0": {"embeddings": None, **layers}, "A0 row 1": layers}
    edge = GateReport("a", [result("off / r / logits", edge_a_db, 100, "layer 2 (mlp.up_proj)")])
    edge.results.append(GateResult("greedy / r", True, "exact"))
    edge.facts |= {"error_by_layer": {"optimisation off": layers | {"logits": edge_a_db}}, "greedy": {"tokens": 32}}
    verdict = {"word": "regressed", "gained": 0, "lost": 9, "pairs": 40, "p_value": 0.0039}
    axes = {"before": {"out_of_scope_rejection": axis(36, 40)}, "after": {"out_of_scope_rejection": axis(27, 40)}}
    steps = [{"event": "step", "step": i, "train/loss": 3.0 / i} for i in range(1, 30)]
    with run.stage("train") as stage:
        write_json(
            run.path("recipe.json"),
            {"model": {"name": "smollm2-135m"}, "architecture": "llama", "licence": "apache-2.0"},
        )
        write_json(run.path("parity", "a0.json"), a0.as_json())
        write_json(run.path("parity", "a-base.json"), edge.as_json())
        if tuned:
            write_json(run.path("parity", "a.json"), edge.as_json())
        write_json(run.path("eval", "axes.json"), axes | {"verdicts": {"out_of_scope_rejection": verdict}})
        write_jsonl(run.path("log.jsonl"), [*steps, {"event": "epoch_done", "step": 29, "valid_loss": 0.4}])
        stage.wrote(run.path("recipe.json"), run.path("parity"), run.path("eval"), run.path("log.jsonl"))
    return run


def test_a_whole_run_is_reported_with_its_worst_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    report = write_report(run)
    assert report == read_json(run.path("parity", "report.json"))
    assert report["passed"] and report["licence"] == "apache-2.0"
    assert report["gates"]["a0"]["forward"]["psnr_db"] == 131.2
    assert report["gates"]["a0"]["backward"]["psnr_db"] == 99.5
    assert report["gates"]["edge_a_tuned"]["greedy"] == {"prompts": 1, "equal": 1, "tokens_each": 32}
    assert set(report["not_measured"]) == {"edge_b", "speed_on_device"}
    assert run.altered() == []
    for name in report["plots"]:
        assert run.path("parity", name).read_bytes().startswith(PNG)
    assert report["plots"] == ["plots/loss.png", "plots/error_by_layer.png"]


def test_report_md_says_edge_b_was_not_run_and_shows_the_regression(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_report(run)
    text = run.path("parity", "report.md").read_text()
    assert "| edge B, ONNX Runtime ↔ Sentis | not run | `parity RUN --edge ab` predicts it |" in text
    assert "regressed (p = 0.0039) | 36/40 · 90 % (10–90) → 27/40 · 68 % (10–90) |" in text
    assert "![error by layer](plots/error_by_layer.png)" in text
    assert "| train | " in text


def test_the_terminal_table_names_where_a_failure_begins(tmp_path: Path) -> None:
    table = verdict_table(write_report(make_run(tmp_path, edge_a_db=31.0)))
    assert "edge A, tuned weights " in table and "FAIL" in table
    assert "begins at" in table and "layer 2 (mlp.up_proj)" in table


def test_a_remark_widens_no_column_of_the_terminal_table() -> None:
    wide = "  a remark that is longer than every check of this table"
    rows = [("gate A0", "pass", "123 dB"), (wide, "", ""), ("edge B", "not run", "needs Unity")]
    assert table(("check", "verdict", "figure"), rows).splitlines() == [
        "check    verdict  figure",
        "───────  ───────  ───────────",
        "gate A0  pass     123 dB",
        wide,
        "edge B   not run  needs Unity",
    ]


def test_the_terminal_says_whether_the_whole_run_passed(tmp_path: Path) -> None:
    assert verdict_table(write_report(make_run(tmp_path))).endswith("\n\nEvery gate that belongs to the run passed.")
    missed = verdict_table(write_report(make_run(tmp_path / "missed", edge_a_db=31.0)))
    assert missed.endswith("\n\nNot every gate was run and passed.")


def test_a_gate_that_was_not_run_is_not_passed(tmp_path: Path) -> None:
    report = write_report(make_run(tmp_path, tuned=False))
    assert not report["passed"]
    assert report["not_measured"]["edge_a_tuned"] == "not run"


def test_an_overridden_gate_is_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with run.stage("swap") as stage:
        stage.facts["ungated"] = True
    report = write_report(run)
    assert report["ungated"] == ["swap"] and "UNGATED" in verdict_table(report)


def test_an_axis_table_without_a_fine_tune_has_one_side() -> None:
    assert axes_table({"before": {"whole_call": axis(1, 2)}}).splitlines()[2] == "whole call  1/2 · 50 % (10–90)"


def test_nothing_to_draw_draws_nothing(tmp_path: Path) -> None:
    assert not plot_loss([{"event": "step", "step": 1, "train/loss": None}], tmp_path / "loss.png")
    assert not plot_error_by_layer({"a": {"layer 0": None}}, {}, tmp_path / "error.png")
    assert list(tmp_path.iterdir()) == []


def test_depths_are_ordered_by_number_and_the_head_comes_last() -> None:
    series = {"a": {"logits": 1.0, "layer 10": 1.0, "layer 2": 1.0, "embeddings": None}}
    assert depths(series) == {"embeddings": -1, "layer 2": 2, "layer 10": 10, "logits": 11}


def test_the_moving_average_keeps_length_and_mean_of_a_line() -> None:
    assert moving_average([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx([1.5, 2.0, 3.0, 4.0, 4.5])
