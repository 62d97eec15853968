"""Evaluation of a made run through its exported graphs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import parity.evaluate
from parity.commands import evaluate
from parity.evaluate import axis_line, eval_log, evaluate_run, regressed
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings


def test_both_graphs_answer_every_row_and_texts_are_kept(run: RunFolder) -> None:
    document = evaluate_run(run, Settings(), quiet=True)
    rows = read_jsonl(run.path("data", "holdout.jsonl"))
    assert document == read_json(run.path("eval", "axes.json"))
    assert [row["id"] for row in document["rows"]] == [row["id"] for row in rows]
    assert all(row["before"]["text"] and row["before"]["text"] != row["after"]["text"] for row in document["rows"])
    assert document["before"]["function_selection"]["of"] == 10
    assert document["before"]["out_of_scope_rejection"]["of"] == 4
    assert set(document["verdicts"]) == set(document["after"])
    facts = run.manifest()["stages"]["eval"]["facts"]
    assert facts["after"]["new_tokens"] <= 32 * 14


def test_the_right_answers_score_full_on_every_axis_and_prompts_hold_no_answer(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        tuple(r["ids"][: r["prompt_tokens"]]): r["ids"][r["prompt_tokens"] :]
        for r in read_jsonl(run.path("data", "holdout.jsonl"))
    }

    def generate(self: OnnxDecoder, prompt: list[int], most: int, stops: list[int]) -> list[int]:
        found = answers[tuple(prompt)]
        return found[: found.index(stops[0])]

    monkeypatch.setattr(OnnxDecoder, "generate", generate)
    document = evaluate_run(run, Settings(), quiet=True)
    assert all(axis["share"] == 1.0 for axis in document["after"].values())
    assert regressed(document) == []


def test_the_log_has_verdicts_and_no_scores(run: RunFolder) -> None:
    document = evaluate_run(run, Settings(), quiet=True)
    log = run.path("eval", "eval_log.md").read_text()
    assert log == eval_log(document)
    assert "| out of scope rejection | " in log and "%" not in log and "14 rows" in log


def test_the_command_scores_the_first_rows_and_the_baseline_apart(run: RunFolder) -> None:
    done = CliRunner().invoke(evaluate, [str(run.root), "--baseline", "--rows", "3", "--json", "-q"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"], document["rows_scored"]) == (0, "mlx-sentis/eval/1", 3)
    assert "after" not in document
    assert run.path("eval", "baseline.json").is_file() and not run.path("eval", "axes.json").exists()
    text = CliRunner().invoke(evaluate, [str(run.root), "--rows", "2", "-q"]).stdout
    assert text.splitlines()[0].split() == ["axis", "before", "after", "verdict"]


def test_altered_rows_are_not_scored(run: RunFolder) -> None:
    write_jsonl(run.path("data", "holdout.jsonl"), [])
    with pytest.raises(StageError, match="files changed since they were recorded"):
        evaluate_run(run, Settings(), quiet=True)


def test_rows_without_any_expected_answer_are_refused(run: RunFolder) -> None:
    with run.stage("prepare") as stage:
        write_jsonl(run.path("data", "holdout.jsonl"), [{"id": "a", "ids": [1, 2], "prompt_tokens": 1, "expect": None}])
        stage.wrote(run.path("data"))
    with pytest.raises(StageError, match="no row has an expected answer"):
        evaluate_run(run, Settings(), quiet=True)


def test_an_axis_in_one_line_has_counts_share_and_interval() -> None:
    assert axis_line({"right": 52, "of": 60, "share": 52 / 60, "low": 0.758, "high": 0.931}) == "52/60 · 87 % (76–93)"
    assert axis_line({"right": 0, "of": 0, "share": None, "low": None, "high": None}) == "–"
    assert parity.evaluate.SIDES == {"before": "base.onnx", "after": "model.onnx"}
