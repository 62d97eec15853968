"""Budgets, tables and the two forms of an answer."""

from __future__ import annotations

import json

import pytest

from benchmarks.result import Bench, Budget, Table, all_misses, cell, number, ratio


@pytest.mark.parametrize(
    ("found", "at_most", "exact", "passed"),
    [
        (2.0, True, False, True),
        (2.01, True, False, False),
        (2.0, False, False, True),
        (1.99, False, False, False),
        (None, True, False, False),
        (None, False, False, False),
        (None, False, True, True),
        (float("nan"), True, False, False),
        (float("nan"), False, False, False),
    ],
)
def test_a_budget_passes_at_its_limit_and_never_without_a_figure(
    found: float | None, at_most: bool, exact: bool, passed: bool
) -> None:
    assert Budget("m", found, 2.0, "s", at_most, exact).passed is passed


def test_a_budget_says_found_limit_and_direction() -> None:
    assert Budget("time", 1.5, 2.0, "s").cells() == ("pass", "time", "1.5 s", "≤ 2 s", "")
    assert Budget("level", 89.0, 90.0, "dB", at_most=False, detail="layer 3").cells() == (
        ("MISS", "level", "89 dB", "≥ 90 dB", "layer 3")
    )
    assert Budget("level", None, 90.0, "dB", at_most=False, exact=True).cells()[2] == "exact"
    assert Budget("level", None, 90.0, "dB", at_most=False).cells()[2] == "not measured"


def test_an_answer_has_the_same_figures_as_text_and_as_json() -> None:
    table = Table({"who": "contender", "s": "seconds", "why": ""}, [{"who": "ours", "s": 1.25}, {"who": "theirs"}])
    bench = Bench("train", "a step", {"contenders": table}, [Budget("x", 3.0, 2.0, "×")], {"rows": 8}, ["a remark"])
    text, document = bench.text(), json.loads(json.dumps(bench.as_json(), allow_nan=False))
    assert text.splitlines()[2:6] == ["contender  seconds", "─────────  ───────", "ours       1.25", "theirs     –"]
    assert text.endswith("  a remark")
    assert document["contenders"] == table.rows
    assert document["passed"] is False
    assert document["budgets"][0]["found"] == 3.0
    assert document["budgets"][0]["passed"] is False
    assert (document["bench"], document["facts"], document["notes"]) == ("train", {"rows": 8}, ["a remark"])


def test_a_column_without_heading_shows_only_where_a_row_has_something_to_say() -> None:
    silent = Table({"who": "contender", "why": ""}, [{"who": "ours"}])
    spoken = Table({"who": "contender", "why": ""}, [{"who": "ours"}, {"who": "theirs", "why": "killed"}])
    assert silent.text().splitlines()[-1] == "ours"
    assert spoken.text().splitlines()[-1].split() == ["theirs", "killed"]


def test_misses_carry_the_name_of_their_benchmark() -> None:
    good, bad = Budget("a", 1.0, 2.0, "s"), Budget("b", 3.0, 2.0, "s")
    assert all_misses([Bench("one", "", budgets=[good]), Bench("two", "", budgets=[good, bad])]) == [("two", bad)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.0, "2"), (0.0586, "0.0586"), (131.94, "131.9"), (12345.6, "12,346"), (1.2e-5, "1.2e-05")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_cells_and_ratios_of_missing_figures_are_dashes() -> None:
    assert [cell(None), cell(True), cell("x"), cell([1])] == ["–", "yes", "x", "[1]"]
    assert [ratio(None, 2.0), ratio(2.0, None), ratio(2.0, 0.0), ratio(3.0, 2.0)] == [None, None, None, 1.5]
