"""Scores in words."""

from __future__ import annotations

from typing import Any

import pytest

from parity.eval_words import axis_line, gate_lines, verdict_word, wording_of


def test_an_axis_in_one_line_has_counts_share_and_interval() -> None:
    assert axis_line({"right": 52, "of": 60, "share": 52 / 60, "low": 0.758, "high": 0.931}) == "52/60 · 87 % (76–93)"
    assert axis_line({"right": 0, "of": 0, "share": None, "low": None, "high": None}) == "–"


def test_a_verdict_names_what_decided_it() -> None:
    assert verdict_word({"word": "improved", "p_value": 0.0123}) == "improved (p = 0.012)"
    assert verdict_word({"word": "not comparable", "p_value": None, "rule": ""}) == "not comparable"
    assert verdict_word({"word": "regressed", "p_value": 0.125, "rule": "always calls"}) == "regressed (always calls)"


def near(*pairs: tuple[str, str], count: int | None = None, **more: Any) -> dict[str, Any]:
    listed = [{"earlier": {"split": first}, "later": {"split": second}} for first, second in pairs]
    leaks = {"count": len(listed) if count is None else count, "listed": listed}
    return {"near_duplicates": {"threshold": 0.8, "complete": True, "leaks": leaks} | more}


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (near(), "new phrasings: none says almost the same"),
        (near(("train", "valid")), "new phrasings: none says almost the same"),  # no held-out row in it
        (near(("train", "holdout"), ("train", "valid")), "not all are new phrasings: 1 pair of a held-out row"),
        (near(("train", "holdout"), count=140), "not all are new phrasings: at least 1 pair"),
        (near(complete=False), "new phrasings as far as rows were compared"),
        (near(threshold=1), "no held-out text stands in another split"),
        ({}, "was not looked at"),
    ],
)
def test_held_out_rows_are_called_new_phrasings_only_as_far_as_the_data_says_so(
    dataset: dict[str, Any], words: str
) -> None:
    assert words in wording_of(dataset)


def test_a_gate_that_separates_nothing_is_not_announced_like_a_usable_one() -> None:
    axis = {"right": 0, "of": 0, "share": None, "low": None, "high": None}
    side = {"function_selection": axis, "out_of_scope_rejection": axis}
    gate = {
        "threshold": 0.0,
        "tools": ["open"],
        "tools_left_out": [],
        "remark": "nothing was separated",
        "held_out": {},
    }
    lines = gate_lines(gate | {"calibration": {"without_gate": side, "with_gate": side}})
    assert lines[0] == "gate.json: nothing was separated; 1 tool"
    assert not any("a call passes" in line for line in lines)
