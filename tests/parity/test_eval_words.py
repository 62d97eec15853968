"""Scores in words."""

from __future__ import annotations

from parity.eval_words import axis_line, verdict_word


def test_an_axis_in_one_line_has_counts_share_and_interval() -> None:
    assert axis_line({"right": 52, "of": 60, "share": 52 / 60, "low": 0.758, "high": 0.931}) == "52/60 · 87 % (76–93)"
    assert axis_line({"right": 0, "of": 0, "share": None, "low": None, "high": None}) == "–"


def test_a_verdict_names_what_decided_it() -> None:
    assert verdict_word({"word": "improved", "p_value": 0.0123}) == "improved (p = 0.012)"
    assert verdict_word({"word": "not comparable", "p_value": None, "rule": ""}) == "not comparable"
    assert verdict_word({"word": "regressed", "p_value": 0.125, "rule": "always calls"}) == "regressed (always calls)"
