"""Separated axes: what is right on one never hides what is wrong on another."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_sentis.evaluation.scoring import (
    Answer,
    Axis,
    arguments_by_name,
    normalised,
    read_answer,
    same_value,
    score,
)
from mlx_sentis.evaluation.verdicts import verdict, verdicts

TOOLS = {"move_to", "open"}


def wants(row: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": row, "expect": {"kind": "call", "name": name, "arguments": arguments}}


def declines(row: str) -> dict[str, Any]:
    return {"id": row, "expect": {"kind": "none"}}


def call(name: str, **arguments: Any) -> Answer:
    return Answer("call", name, arguments)


def counts(outcomes: list[tuple[dict[str, Any], Answer]]) -> dict[str, tuple[int, int]]:
    return {name: (axis.right, axis.of) for name, axis in score(outcomes).items()}


def test_each_axis_counts_its_own_units() -> None:
    found = counts(
        [
            (wants("a", "move_to", place="old mill", pace="slow"), call("move_to", place="The  Old Mill", pace="fast")),
            (wants("b", "open", thing="gate"), call("move_to", thing="gate")),
            (wants("c", "open", thing="gate"), Answer("broken")),
            (declines("d"), Answer("none")),
            (declines("e"), call("open", thing="gate")),
        ]
    )
    assert found == {
        "function_selection": (1, 3),
        "arguments_exact": (0, 2),
        "arguments_normalised": (1, 2),
        "arguments_exact_all": (0, 4),
        "arguments_normalised_all": (1, 4),
        "whole_call": (0, 3),
        "out_of_scope_rejection": (1, 2),
        "format_validity": (4, 5),
    }


def test_an_added_argument_spoils_the_whole_call_only() -> None:
    found = counts([(wants("a", "open", thing="gate"), call("open", thing="gate", force=1))])
    assert found["arguments_exact"] == (1, 1)
    assert found["whole_call"] == (0, 1)


def test_a_call_without_arguments_is_whole_by_its_tool() -> None:
    assert counts([(wants("a", "open"), call("open"))])["whole_call"] == (1, 1)


def test_prose_declines_but_is_no_valid_format_and_a_broken_call_does_not_decline() -> None:
    found = counts([(declines("a"), Answer("prose")), (declines("b"), Answer("broken"))])
    assert found["out_of_scope_rejection"] == (1, 2)
    assert found["format_validity"] == (0, 2)


def test_rows_without_a_right_answer_are_not_counted() -> None:
    assert all(of == 0 for _, of in counts([({"id": "a", "expect": None}, Answer("none"))]).values())


def test_a_row_id_that_appears_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' appears twice"):
        score([(declines("a"), Answer("none"))] * 2)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("none", "none"),
        ('{"name": "open", "arguments": {"thing": "gate"}}', "call"),
        ('{"name": "fly", "arguments": {}}', "broken"),
        ('{"name": "open", "arguments": {"thing": "ga', "broken"),
        ("I am sorry, I cannot.", "prose"),
        ('{"name": "open", "arguments": {}}\n{"name": "open", "arguments": {}}', "broken"),
    ],
)
def test_texts_are_read_by_kind(text: str, kind: str) -> None:
    assert read_answer(text, TOOLS, "system-block").kind == kind


def test_normalising_drops_case_one_leading_article_and_spacing_only() -> None:
    assert normalised("  The   Old\tMill ") == "old mill"
    assert normalised("a") == "a" and normalised("Theatre") == "theatre"
    assert normalised(3) == 3


def test_json_types_are_not_mixed_up() -> None:
    assert not same_value(1, True) and not same_value(1, "1") and same_value({"a": 1, "b": 2}, {"b": 2, "a": 1})


def test_a_model_that_always_calls_regresses_out_of_scope_even_when_every_tool_is_right() -> None:
    wanted = [wants(f"in-{i}", "open", thing="gate") for i in range(60)]
    outside = [declines(f"out-{i}") for i in range(40)]
    always = call("open", thing="gate")
    before = score([(row, Answer("none")) for row in wanted] + [(row, Answer("none")) for row in outside])
    after = score([(row, always) for row in wanted + outside])
    words = {found.axis: found.word for found in verdicts(before, after)}
    assert after["function_selection"].right == 60
    assert words["function_selection"] == "improved"
    assert words["out_of_scope_rejection"] == "regressed"
    assert words["format_validity"] == "unchanged"
    assert words["arguments_exact"] == "not comparable"  # before, no row had the right tool


def test_a_change_within_chance_is_unchanged() -> None:
    before = Axis({(str(i),): i < 20 for i in range(40)})
    after = Axis({(str(i),): i < 24 for i in range(40)})
    found = verdict("x", before, after)
    assert (found.word, found.gained, found.lost, found.pairs) == ("unchanged", 4, 0, 40)
    assert found.p_value == pytest.approx(0.125)


def test_an_axis_as_json_has_share_and_interval_or_nothing() -> None:
    assert Axis().as_json() == {"right": 0, "of": 0, "share": None, "low": None, "high": None}
    found = Axis({("a",): True, ("b",): False}).as_json()
    assert (found["share"], found["low"] < 0.5 < found["high"]) == (0.5, True)


def test_arguments_are_also_told_by_name_and_a_wrong_tool_extracts_none() -> None:
    outcomes = [
        (wants("a", "move_to", place="old mill", pace="slow"), call("move_to", place="The Old Mill", pace="slow")),
        (wants("b", "move_to", place="gate"), call("open", place="gate")),
        (wants("c", "open", thing="gate"), call("open", thing="gate")),
        (declines("d"), call("open", thing="gate")),
    ]
    found = {
        name: tuple((axis.right, axis.of) for axis in axes.values())
        for name, axes in arguments_by_name(outcomes).items()
    }
    assert found == {
        "move_to.pace": ((1, 1), (1, 1)),
        "move_to.place": ((0, 2), (1, 2)),  # exact, normalised
        "open.thing": ((1, 1), (1, 1)),
    }
