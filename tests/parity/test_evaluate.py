"""Evaluation of a made run: both runners, separated axes, and models that always or never call."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers import call
from tokenizers import Tokenizer

import parity.evaluate
from mlx_sentis.evaluation.generator import Greedy
from parity.eval_words import eval_log, regressed
from parity.evaluate import evaluate_run
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_json, write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

Say = Callable[[dict[str, Any]], tuple[str, float]]  # a row to the model's text and its first-token margin


class Planted:
    """A generator that says what a test wants: text and first-token margin by prompt."""

    def __init__(self, run: RunFolder, say: Say) -> None:
        tokenizer = Tokenizer.from_file(str(run.path("merged", "tokenizer.json")))
        self.vocab = tokenizer.get_vocab_size()
        self.said: dict[tuple[int, ...], tuple[list[int], float]] = {}
        for split in ("holdout", "calibration"):
            for row in read_jsonl(run.path("data", f"{split}.jsonl")):
                text, margin = say(row)
                prompt = tuple(row["ids"][: row["prompt_tokens"]])
                self.said[prompt] = (tokenizer.encode(text, add_special_tokens=False).ids, margin)
        self.refusal = tokenizer.encode("none", add_special_tokens=False).ids[0]

    def set_prefix(self, ids: Sequence[int]) -> None:
        assert all(list(prompt[: len(ids)]) == list(ids) for prompt in self.said)

    def greedy(
        self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int] = (), *, keep_logits: bool = False
    ) -> Greedy:
        ids, margin = self.said[tuple(prompt_ids)]
        rows = np.zeros((len(ids), self.vocab), np.float32)
        rows[np.arange(len(ids)), ids] = 50
        rows[0, self.refusal] = 50 - margin if ids[0] != self.refusal else 50
        return Greedy(ids[:max_new_tokens], list(rows[:max_new_tokens]) if keep_logits else [])


@pytest.fixture
def plant(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Callable[[Say, Say], RunFolder]:
    """Put generators in the place of the base and the tuned model."""

    def place(base: Say, tuned: Say) -> RunFolder:
        says = {"base": base, "tuned": tuned}
        monkeypatch.setattr(parity.evaluate, "open_generator", lambda run, runner, side: Planted(run, says[side]))
        return run

    return place


def right(row: dict[str, Any]) -> tuple[str, float]:
    expect = row["expect"]
    wanted = json.dumps({"name": expect.get("name"), "arguments": expect.get("arguments")})
    return (wanted, 8.0) if expect["kind"] == "call" else ("none", 0.0)


def always_calls(row: dict[str, Any]) -> tuple[str, float]:
    return right(row) if row["expect"]["kind"] == "call" else ('{"name": "open", "arguments": {"thing": "it"}}', 2.0)


def never_calls(row: dict[str, Any]) -> tuple[str, float]:
    return "I would rather talk.", 1.0


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
    assert (facts["before"]["rows"], facts["after"]["rows"]) == (14, 14 + 11)
    assert facts["before"]["new_tokens"] <= 32 * 14


def test_mlx_and_the_exported_graph_give_the_same_answers(run: RunFolder) -> None:
    onnx = evaluate_run(run, Settings(), quiet=True)
    gates = [read_json(run.path("eval", "gate.json"))]
    mlx = evaluate_run(run, Settings(), runner="mlx", quiet=True)
    gates.append(read_json(run.path("eval", "gate.json")))
    assert (onnx.pop("runner"), mlx.pop("runner")) == ("onnx", "mlx")
    assert mlx["rows"] == onnx["rows"] and mlx["after"] == onnx["after"]
    assert [gate.pop("runner") for gate in gates] == ["onnx", "mlx"]
    assert gates[1]["threshold"] == pytest.approx(gates[0]["threshold"], abs=1e-3)
    assert {key for key in gates[0] if gates[0][key] != gates[1][key]} <= {"threshold", "clearance"}


def test_the_right_answers_score_full_on_every_axis_and_prompts_hold_no_answer(
    plant: Callable[[Say, Say], RunFolder],
) -> None:
    document = evaluate_run(plant(never_calls, right), Settings(), quiet=True)
    assert all(axis["share"] == 1.0 for axis in document["after"].values())
    assert regressed(document) == []
    assert document["arguments"]["after"]["open.thing"]["exact"]["right"] == 10
    assert document["arguments"]["before"]["open.thing"]["exact"]["right"] == 0


def test_a_model_that_always_calls_is_flagged_out_of_scope_even_when_it_chooses_every_function_rightly(
    plant: Callable[[Say, Say], RunFolder],
) -> None:
    run = plant(right, always_calls)  # four rows out of scope: 4 of 4 lost has p = 0.125, too few for the test alone
    result = call("eval", run.root, "-q")
    assert result.exit_code == 0
    document = read_json(run.path("eval", "axes.json"))
    assert document["after"]["function_selection"]["share"] == 1.0
    assert (
        document["verdicts"]["out_of_scope_rejection"] | {"p_value": 0.125, "lost": 4}
        == (document["verdicts"]["out_of_scope_rejection"])
    )
    line = next(line for line in result.stdout.splitlines() if line.startswith("out of scope rejection"))
    assert line.endswith("regressed (always calls)")
    said = "The tuned model always calls: it declines nothing that is out of scope."
    assert said in result.stdout.splitlines()
    log = run.path("eval", "eval_log.md").read_text(encoding="utf-8")
    assert "| out of scope rejection | regressed |" in log and f"**{said}**" in log
    assert "%" not in log and "4/4" not in log


def test_broken_answers_everywhere_are_no_calls_and_the_gate_that_separates_nothing_says_so(
    plant: Callable[[Say, Say], RunFolder],
) -> None:
    run = plant(right, lambda row: ('{"name": "open", "argum', 3.0))
    text = call("eval", run.root, "-q").stdout
    document, gate = (read_json(run.path("eval", f"{name}.json")) for name in ("axes", "gate"))
    assert "The tuned model begins a call everywhere, none well-formed." in text.splitlines()
    assert "always calls:" not in text
    rejection = document["gate"]["held_out"]["out_of_scope_rejection"]
    assert (rejection["without_gate"]["right"], rejection["with_gate"]["right"]) == (0, 4)
    assert gate["calibration"]["with_gate"]["out_of_scope_rejection"]["right"] == 5
    assert (gate["youden_j"], gate["clearance"]) == (0, None) and gate["remark"] == document["gate"]["remark"]
    assert "gate.json: nothing was separated" in text and "a call passes" not in text
    log = run.path("eval", "eval_log.md").read_text(encoding="utf-8")
    assert "**Nothing was separated" in log and "was not looked at" in log  # the toy's data says nothing of wording


def test_a_base_model_that_never_calls_gets_no_praise_for_declining(plant: Callable[[Say, Say], RunFolder]) -> None:
    run = plant(never_calls, right)
    text = call("eval", run.root, "-q").stdout
    said = "The base model never calls a tool: that it declines what is out of scope is trivial and no merit."
    assert said in text.splitlines()
    assert f"**{said}**" in run.path("eval", "eval_log.md").read_text(encoding="utf-8")


def test_a_tuned_model_that_stops_calling_has_not_improved_out_of_scope(
    plant: Callable[[Say, Say], RunFolder],
) -> None:
    run = plant(always_calls, never_calls)
    document = evaluate_run(run, Settings(), quiet=True)
    assert document["after"]["out_of_scope_rejection"]["share"] == 1.0
    assert document["verdicts"]["out_of_scope_rejection"]["word"] != "improved"
    assert "the tuned model never calls a tool" in document["remarks"][1]


def test_the_log_has_verdicts_and_no_scores(run: RunFolder) -> None:
    document = evaluate_run(run, Settings(), quiet=True)
    log = run.path("eval", "eval_log.md").read_text()
    assert log == eval_log(document)
    assert "| out of scope rejection | " in log and "%" not in log and "14 rows" in log


def test_the_command_scores_the_first_rows_and_the_baseline_apart(run: RunFolder) -> None:
    done = call("eval", run.root, "--baseline", "--rows", "3", "--json", "-q")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"], document["rows_scored"]) == (0, "mlx-sentis/eval/1", 3)
    assert "after" not in document
    assert [path.name for path in run.path("eval").iterdir()] == ["baseline.json"]
    text = call("eval", run.root, "--rows", "2", "-q").stdout
    assert text.splitlines()[0].split() == ["axis", "before", "after", "verdict"]


def test_held_out_and_calibration_rows_are_shown_side_by_side(plant: Callable[[Say, Say], RunFolder]) -> None:
    def only_calibration(row: dict[str, Any]) -> tuple[str, float]:
        return right(row) if row["id"].startswith("c") else ("none", 0.0)

    lines = call("eval", plant(never_calls, only_calibration).root, "-q").stdout.splitlines()
    gap = next(line for line in lines if line.startswith("arguments exact all, tuned"))
    assert gap == ("arguments exact all, tuned: calibration rows 6/6 · 100 % (61–100), held-out rows 0/10 · 0 % (0–28)")


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


def rewrite(run: RunFolder, split: str, rows: list[dict[str, Any]]) -> None:
    """Replace a split as `prepare` would: recorded in the manifest."""
    with run.stage("prepare") as stage:
        write_jsonl(run.path("data", f"{split}.jsonl"), rows)
        stage.wrote(run.path("data"))


def test_a_held_out_row_never_enters_the_gate(
    run: RunFolder, plant: Callable[[Say, Say], RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaky(row: dict[str, Any]) -> tuple[str, float]:
        text = always_calls(row)[0]
        return text, {"r": 0.5, "o": 60.0, "c": 3.0}[row["id"][0]] + (1.0 if row["expect"]["kind"] == "call" else 0.0)

    plant(never_calls, leaky)
    evaluate_run(run, Settings(), quiet=True)
    clean = run.path("eval", "gate.json").read_bytes()
    held_out = read_jsonl(run.path("data", "holdout.jsonl"))
    poisoned = [row | {"expect": {"kind": "none"}} if i % 2 else row for i, row in enumerate(held_out)]
    for rows in (poisoned, held_out[:1], [row | {"expect": {"kind": "none"}} for row in held_out]):
        rewrite(run, "holdout", rows)
        document = evaluate_run(run, Settings(), quiet=True)
        assert run.path("eval", "gate.json").read_bytes() == clean
    assert document["gate"]["held_out"]["function_selection"]["without_gate"]["of"] == 0
    rewrite(run, "calibration", read_jsonl(run.path("data", "calibration.jsonl"))[1:])  # the other side does decide
    evaluate_run(run, Settings(), quiet=True)
    assert run.path("eval", "gate.json").read_bytes() != clean


def test_the_gate_holds_back_calls_below_its_threshold_and_says_what_that_costs(
    plant: Callable[[Say, Say], RunFolder],
) -> None:
    margins = {"cr": [9, 8, 7, 6, 3, 1], "co": [4, 2, 2, 1, 0.5], "r": [9] * 7 + [2] * 3, "o": [6, 3, 2, 1]}

    def scored(row: dict[str, Any]) -> tuple[str, float]:
        split, number = row["id"].split("-")
        return always_calls(row)[0], float(margins[split][int(number)])

    run = plant(never_calls, scored)
    text = call("eval", run.root, "-q").stdout
    gate = read_json(run.path("eval", "gate.json"))
    assert gate["threshold"] == 5.0  # passes 4 of 6 calls and none of 5: J = 2/3
    assert gate["youden_j"] == pytest.approx(4 / 6)
    assert (gate["tools"], gate["tools_left_out"]) == (["open"], ["move_to"])
    assert "gate.json: a call passes from a first-token margin of 5; 1 tool; left out" in text
    calibration = gate["calibration"]
    assert calibration["without_gate"]["out_of_scope_rejection"]["right"] == 0
    assert calibration["with_gate"]["function_selection"]["right"] == 4
    assert calibration["with_gate"]["out_of_scope_rejection"]["right"] == 5
    held_out = read_json(run.path("eval", "axes.json"))["gate"]["held_out"]
    assert held_out["function_selection"]["without_gate"]["right"] == 10
    assert held_out["function_selection"]["with_gate"]["right"] == 7
    assert (
        held_out["out_of_scope_rejection"]["with_gate"] | {"right": 3, "of": 4}
        == (held_out["out_of_scope_rejection"]["with_gate"])
    )
    assert run.manifest()["stages"]["eval"]["outputs"].keys() == {
        "eval/axes.json",
        "eval/gate.json",
        "eval/eval_log.md",
    }


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (0, "No gate.json: there is no calibration split"),
        (8, "No gate.json: 6 calibration rows want a call and 2 want none, wanted at least 5 of each"),
    ],
)
def test_without_enough_calibration_rows_no_gate_is_made_and_an_old_one_goes(
    run: RunFolder, plant: Callable[[Say, Say], RunFolder], kept: int, why: str
) -> None:
    plant(never_calls, always_calls)
    evaluate_run(run, Settings(), quiet=True)
    assert run.path("eval", "gate.json").is_file()
    rewrite(run, "calibration", read_jsonl(run.path("data", "calibration.jsonl"))[:kept])
    result = call("eval", run.root, "-q")
    assert result.exit_code == 0 and why in result.stdout
    assert why.removeprefix("No gate.json: ") in run.path("eval", "eval_log.md").read_text(encoding="utf-8")
    assert not run.path("eval", "gate.json").exists()
    assert "eval/gate.json" not in run.recorded_hashes()


def test_refusals_that_begin_differently_give_no_gate(run: RunFolder, plant: Callable[[Say, Say], RunFolder]) -> None:
    rows = read_jsonl(run.path("data", "calibration.jsonl"))
    rows[-1]["ids"][rows[-1]["prompt_tokens"]] += 1
    rewrite(run, "calibration", rows)
    document = evaluate_run(plant(never_calls, always_calls), Settings(), quiet=True)
    assert "refusals begin with the tokens" in document["gate"]["why_not"]


def test_each_runner_wants_its_own_files(run: RunFolder) -> None:
    run.path("onnx", "model.onnx").unlink()
    manifest = run.manifest()
    manifest["stages"]["swap"]["outputs"].pop("onnx/model.onnx")
    write_json(run.path("manifest.json"), manifest)
    assert evaluate_run(run, Settings(), runner="mlx", rows=1, quiet=True)["rows_scored"] == 1
    with pytest.raises(StageError, match=r"inputs are missing:\n.*model\.onnx"):
        evaluate_run(run, Settings(), quiet=True)
