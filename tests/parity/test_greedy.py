"""Token for token."""

from __future__ import annotations

import numpy as np

from parity.greedy import compare_greedy

ROWS = [np.array([0.0, 2.0, 1.5]), np.array([3.0, 0.0, 1.0])]


def test_equal_tokens_pass() -> None:
    assert compare_greedy("p", ([1, 0], ROWS), ([1, 0], ROWS)).passed


def test_a_mismatch_names_step_tokens_and_both_margins() -> None:
    graph = [ROWS[0], np.array([1.0, 0.0, 1.25])]
    found = compare_greedy("p", ([1, 0], ROWS), ([1, 2], graph))
    assert (found.passed, found.reason, found.where) == (False, "token mismatch", "p, step 1")
    assert found.detail == "step 1: the original chose 0 (ahead of 2 by 2), the graph chose 2 (ahead of 0 by 0.25)"


def test_a_shorter_answer_and_no_answer_fail() -> None:
    assert compare_greedy("p", ([1, 0], ROWS), ([1], ROWS[:1])).reason == "length"
    assert compare_greedy("p", ([], []), ([], [])).reason == "nothing compared"
