"""Every prepared row is looked at, cheaply: whatever `prepare` cannot have written is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.row_checks import row_faults, rows_to_render, turns_result
from mlx_sentis.prepare.rows import Row
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer

Rows = list[dict[str, Any]]


def talk(number: int, turns: int = 1) -> list[dict[str, Any]]:
    pair = [{"role": "user", "content": f"Open gate {number}"}, {"role": "assistant", "content": f"Gate {number}."}]
    return pair * turns


@pytest.fixture(scope="module")
def model(toy_model: Callable[[str], Path]) -> tuple[Any, dict[str, Any]]:
    folder = toy_model("llama")
    return load_tokenizer(folder), make_recipe(folder)


def made(model: tuple[Any, dict[str, Any]], *turns: int, train_turns: Any = "all") -> Rows:
    tokenizer, recipe = model
    inputs = [Row(talk(n, count), [], f"rows.jsonl:{n}") for n, count in enumerate(turns, 1)]
    found = list(prepared_rows(inputs, tokenizer, recipe, train_turns=train_turns))
    assert all(isinstance(one, Prepared) for one in found)
    return [one.as_json(f"train-{n:04}") for n, one in enumerate(found, 1) if isinstance(one, Prepared)]


def faults(model: tuple[Any, dict[str, Any]], rows: Rows, turns: str = "all") -> list[str]:
    return row_faults(rows, model[0], model[1]["stop_ids"], turns)


def test_rows_as_prepare_writes_them_have_no_fault(model: tuple[Any, dict[str, Any]]) -> None:
    assert faults(model, made(model, *[1] * 520, 2, 3)) == []  # more than one call of the tokenizer
    assert faults(model, made(model, 1, 3, train_turns="last"), "last") == []


def shift(row: dict[str, Any], by: int) -> None:
    row["trained"] = [[start + by, stop + by] for start, stop in row["trained"]]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda row: shift(row, -8), "ends in token id"),
        (lambda row: shift(row, 8), "is empty or outside of"),
        (lambda row: row["ids"].__setitem__(3, 77), "ids and text part at token 3: found 77"),
        (lambda row: row["ids"].append(5), "tokens"),
        (lambda row: row.update(text=row["text"].replace("Gate 3", "Gate 4")), "ids and text part at token"),
        (lambda row: row.update(trained=[]), "no token is trained"),
        (lambda row: row.update(trained=[[5, 5]]), "trained span 5–5 is empty"),
        (lambda row: row.update(trained=row["trained"] * 2), "overlap or are out of order"),
        (lambda row: row["trained"][0].__setitem__(0, 1), "the last trained span begins at 1"),
        (lambda row: row.pop("messages"), "has no messages"),
    ],
)
def test_a_spoilt_row_far_into_the_data_is_named(
    model: tuple[Any, dict[str, Any]], spoil: Callable[[dict[str, Any]], Any], why: str
) -> None:
    rows = made(model, *[1] * 4)
    spoil(rows[2])
    (fault,) = faults(model, rows)
    assert fault.startswith("row train-0003: ") and why in fault


def test_conversations_show_which_turns_are_trained(model: tuple[Any, dict[str, Any]]) -> None:
    every, last = made(model, 1, 3), made(model, 1, 3, train_turns="last")
    assert faults(model, every, "last") == ["row train-0002: trains 3 of 3 turns, train_turns = last wants 1"]
    assert faults(model, last, "all") == ["row train-0002: trains 1 of 3 turns, train_turns = all wants 3"]
    for rows, wanted, other in ((every, "all", "last"), (last, "last", "all")):
        assert turns_result(rows, wanted).passed
        found = turns_result(rows, other)
        assert not found.passed and "row train-0002 trains" in found.detail
    assert turns_result(every[:1], "all").passed and turns_result(every[:1], "last").passed  # one turn fits both
    assert "wanted one of all, last" in turns_result(every[:1], "first").detail


def test_odd_rows_and_conversations_are_rendered_beside_the_first_and_a_sample(
    model: tuple[Any, dict[str, Any]],
) -> None:
    rows = made(model, *[1] * 300, 2, *[1] * 300)
    stops = model[1]["stop_ids"]
    odd = copy.deepcopy(rows[450])
    odd["trained"][0][0] = 1  # over the end of the user's turn
    rows[450] = odd
    chosen = [row["id"] for row in rows_to_render(rows, stops, 42)]
    assert {row["id"] for row in rows[:8]} < set(chosen)
    assert {"train-0301", "train-0451"} < set(chosen) and 40 < len(chosen) <= 42
    assert chosen == [row["id"] for row in rows_to_render(rows, stops, 42)] == sorted(chosen)
    assert chosen != [row["id"] for row in rows_to_render(rows, stops, 43)]
    assert rows_to_render([], stops, 42) == []
