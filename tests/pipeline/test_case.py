"""The case file of a finished run, through the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import call, edit_json

from parity.cases.records import content_sha256
from weights_bridge.files import read_json

Alter = Callable[[Callable[[Path], object]], Path]
TITLES = [
    "1. Model and constants",
    "2. Where the recipe stands",
    "3. Data",
    "4. Fine-tune",
    "5. Export",
    "6. Traps, by class",
    "7. Parity and scores",
]


def test_a_finished_runs_case_file_has_all_fields_and_no_path_of_this_machine(toy_run: Path, tmp_path: Path) -> None:
    result = call("case", toy_run, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "toy-llama.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d\. .*)$", page, re.M) == TITLES
    assert "**Status: fine-tuned; gate A0, MLX ↔ torch: passed; edge A, base weights: passed; edge A, tuned" in page
    assert "--set model.name=toy-llama" in page and "--set train.epochs=2" in page
    assert re.search(r"\| edge A, tuned weights: sequence \| pass \| [23] turns, \d+ steps", page)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert str(toy_run.parent) not in file.read_text(encoding="utf-8")
    assert (tmp_path / "records" / "toy-llama.json").stat().st_size < 100_000
    for checked in (("--check", tmp_path), (toy_run, "--check", tmp_path / "toy-llama.md")):
        assert call("case", *checked).exit_code == 0


def test_a_score_changed_in_page_and_records_is_found_by_the_run(toy_run: Path, tmp_path: Path) -> None:
    assert call("case", toy_run, "--out", tmp_path).exit_code == 0
    records = tmp_path / "records" / "toy-llama.json"

    def better(found: dict[str, Any]) -> None:
        found["sources"]["eval/axes.json"]["after"]["format_validity"]["right"] += 1
        found["sha256"] = content_sha256(found)

    edit_json(records, better)
    assert call("case", "--check", tmp_path).exit_code == 3  # the page still says the old score
    assert call("case", records, "--out", tmp_path).exit_code == 0
    assert call("case", "--check", tmp_path).exit_code == 0  # page and records lie together
    result = call("case", toy_run, "--check", tmp_path / "toy-llama.md")
    assert result.exit_code == 3 and "format validity" in result.stderr


def test_a_run_whose_score_was_changed_gives_no_case_file(altered_run: Alter) -> None:
    def plant(run: Path) -> None:
        edit_json(run / "eval" / "axes.json", lambda found: found["after"]["format_validity"].update(right=99))

    run = altered_run(plant)
    result = call("case", run)
    assert result.exit_code == 1 and "eval/axes.json: sha256 found" in result.stderr


def test_the_talk_of_the_run_is_recorded_step_by_step(toy_run: Path) -> None:
    for file, turns in (("a-base.json", 2), ("a.json", 3)):
        report = read_json(toy_run / "parity" / file)
        facts = report["facts"]["sequence"]
        assert len(facts["turns"]) == turns and len(facts["step_db"]) == facts["steps"] == 32 * turns
        own = [one for one in report["results"] if one["tensor"].startswith("sequence / ")]
        assert [one["passed"] for one in own] == [True] * (turns + 2)


def test_the_json_answer_says_what_was_not_run(altered_run: Alter) -> None:
    def forget(run: Path) -> None:
        (run / "parity" / "a.json").unlink()
        edit_json(run / "manifest.json", lambda found: found["stages"].pop("edge-a-tuned"))
        edit_json(run / "manifest.json", lambda found: found["stages"].pop("report"))

    answer = json.loads(call("case", altered_run(forget), "--json", "-q").stdout)
    assert "edge A, tuned weights: not run" in answer["page"]
    assert "| edge A, tuned weights | not run |  | `parity/a.json: results` |" in answer["page"]
