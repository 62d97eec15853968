"""Models that always or never call: what is said of them, and which verdicts follow."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_sentis.evaluation.conduct import ALWAYS, BEGINS, NEVER, Conduct, amended, conduct_of, remarks
from mlx_sentis.evaluation.scoring import Answer, Axis
from mlx_sentis.evaluation.verdicts import verdict

CALLS = {"expect": {"kind": "call", "name": "open", "arguments": {}}}
OUTSIDE = {"expect": {"kind": "none"}}
FREE = {"expect": None}


def outcome(*kinds: Any) -> list[tuple[dict[str, Any], Answer]]:
    return [(row, Answer(kind)) for row, kind in kinds]


def test_calls_and_begun_calls_are_counted_over_rows_with_a_right_answer() -> None:
    found = conduct_of(
        outcome((CALLS, "call"), (CALLS, "prose"), (OUTSIDE, "broken"), (OUTSIDE, "none"), (FREE, "call"))
    )
    assert found == Conduct(2, 4, 1, 2, 1)
    assert found.word == ""


@pytest.mark.parametrize(
    ("conduct", "word"),
    [
        (Conduct(9, 10, 4, 4, 9), ALWAYS),
        (Conduct(4, 10, 4, 4, 4), ALWAYS),  # even when it declines what it should call
        (Conduct(9, 10, 3, 4, 9), ""),
        (Conduct(10, 10, 4, 4, 0), BEGINS),
        (Conduct(0, 10, 0, 4, 0), NEVER),
        (Conduct(6, 6, 0, 0, 6), ""),  # nothing out of scope was asked
        (Conduct(0, 0, 0, 0, 0), ""),
    ],
)
def test_always_is_judged_out_of_scope_and_never_everywhere(conduct: Conduct, word: str) -> None:
    assert conduct.word == word


def rejection(before: int, after: int, of: int) -> Any:
    axes = [Axis({(str(i),): i < right for i in range(of)}) for right in (before, after)]
    return [verdict("out_of_scope_rejection", *axes), verdict("format_validity", *axes)]


def test_a_fall_to_nothing_is_regressed_however_few_the_rows() -> None:
    found = amended(rejection(2, 0, 2), Conduct(0, 9, 0, 2, 0), Conduct(9, 9, 2, 2, 9))
    assert [(one.word, one.rule) for one in found] == [("regressed", ALWAYS), ("unchanged", "")]


def test_a_base_that_declined_nothing_either_leaves_the_verdict_to_the_test() -> None:
    found = amended(rejection(0, 0, 9), Conduct(9, 9, 9, 9, 9), Conduct(9, 9, 9, 9, 9))
    assert (found[0].word, found[0].rule) == ("unchanged", "")


def test_a_model_that_never_calls_has_not_improved() -> None:
    found = amended(rejection(0, 9, 9), Conduct(9, 9, 9, 9, 9), Conduct(0, 9, 0, 9, 0))
    assert (found[0].word, found[0].rule) == ("not comparable", NEVER)
    assert found[1].word == "improved"  # other axes are left alone


def test_remarks_name_the_model_and_hold_no_figure() -> None:
    said = remarks(Conduct(0, 10, 0, 4, 0), Conduct(10, 10, 4, 4, 10))
    assert said == [
        "the base model never calls a tool: that it declines what is out of scope is trivial and no merit",
        "the tuned model always calls: it declines nothing that is out of scope",
    ]
    assert remarks(None, Conduct(5, 10, 1, 4, 5)) == []
    assert remarks(Conduct(0, 6, 0, 0, 0), None) == ["the base model never calls a tool"]


def test_a_model_without_one_well_formed_call_is_not_said_to_call() -> None:
    broken = conduct_of(outcome((CALLS, "broken"), (OUTSIDE, "broken")))
    assert (broken.word, broken.well_formed) == (BEGINS, 0)
    assert remarks(None, broken) == ["the tuned model begins a call everywhere, none well-formed"]
    some = conduct_of(outcome((CALLS, "broken"), (OUTSIDE, "none")))
    assert remarks(some, None) == ["the base model begins a call in places, none well-formed"]
    found = amended(rejection(2, 0, 2), Conduct(0, 2, 0, 1, 0), broken)
    assert (found[0].word, found[0].rule) == ("regressed", BEGINS)
