"""`bench prepare`: made-up rows are what they claim, and the budgets bite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers import call

from benchmarks.contenders.made_rows import made_rows
from benchmarks.prepare import ROWS, report

FOUND: dict[str, Any] = {"rows": ROWS, "tokens": 300 * ROWS, "megabytes": 150.0, "workers": 2, "seconds_reading": 30.0}
FOUND |= {"seconds": 120.0, "index_bytes_per_row": 557.0, "near_duplicate_rows": 9000}
FOUND |= {"cpu_seconds": 180.0, "all_gib": 0.9}


def test_made_up_rows_are_the_same_each_time_all_different_and_some_almost_alike() -> None:
    rows = list(made_rows(400))
    assert rows == list(made_rows(400))
    questions = [row["messages"][1]["content"] for row in rows]
    assert len(set(questions)) == 400
    alike = sum(
        sum(a != b for a, b in zip(one.split(), other.split(), strict=False)) == 1 for one, other in pairwise(questions)
    )
    assert 8 < alike < 40
    shapes = Counter((len(row["messages"]), "tools" in row) for row in rows)
    assert shapes == {(3, False): 240, (5, False): 80, (3, True): 80}


@pytest.mark.slow
def test_made_up_rows_go_through_the_whole_stage_with_figures(toy_model: Callable[[str], Path]) -> None:
    result = call("bench", "prepare", "--rows", 40, "--model", toy_model("llama"), "--json", "-q")
    assert result.exit_code == 0, result.stderr
    (bench,) = json.loads(result.stdout)["benches"]
    (run,) = bench["runs"]
    assert (run["rows"], run["workers"]) == (40, 0)
    assert run["rows_per_second"] == pytest.approx(40 / run["seconds"], rel=0.01)
    assert run["index_bytes_per_row"] < 1024
    assert 0.05 < run["all_gib"] < 2
    assert run["cpu_seconds"] > 0
    assert [budget["measure"] for budget in bench["budgets"]] == ["all processes", "index per row"]
    assert "no budget of time" in bench["notes"][0]


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, []),
        ({"seconds": 241.0}, ["whole stage"]),
        ({"all_gib": 2.1}, ["all processes"]),
        ({"index_bytes_per_row": 1025.0}, ["index per row"]),
        ({"rows": ROWS - 1, "seconds": 241.0}, []),
    ],
)
def test_a_figure_over_its_budget_misses(change: dict[str, Any], missed: list[str]) -> None:
    assert [budget.measure for budget in report("m", FOUND | change).misses] == missed
