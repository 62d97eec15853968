"""The runtime gate on hand-made scores: every number here can be checked on paper."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mlx_sentis.evaluation.gate import (
    Gate,
    Judged,
    choose_gate,
    effect_of,
    first_token_margin,
    gate_document,
    judged_rows,
    refusal_of,
    require_enough,
)
from mlx_sentis.evaluation.scoring import Answer
from weights_bridge.errors import StageError


def rows_of(right: list[float], wrong: list[float], outside: list[float]) -> list[Judged]:
    """Margins of rows that want `open` and get it, want it and get `wait`, want nothing and get `open`."""
    called, other = Answer("call", "open"), Answer("call", "wait")
    rows = [Judged("open", called, margin) for margin in right] + [Judged("open", other, margin) for margin in wrong]
    return rows + [Judged(None, called, margin) for margin in outside]


def test_the_margin_is_one_float32_subtraction() -> None:
    row = np.array([1.5, -2.0, 3.25, 3.25], np.float32)
    assert first_token_margin(row, 1) == 5.25
    assert first_token_margin(row, 2) == 0.0  # the refusal itself was chosen
    wide = np.array([16777216.0, -1.0], np.float32)
    assert first_token_margin(wide, 1) == 16777216.0  # 2^24 + 1 has no float32: rounded once, to even


def test_the_threshold_maximises_the_right_calls_kept_minus_the_calls_passed_out_of_scope() -> None:
    gate = choose_gate(rows_of([9, 8, 7, 2], [], [5, 4, 1, 1]), 7)
    assert gate == Gate(7, 6.0, ("open",))  # keeps 3 of 4, passes none of 4: J = 0.75; at 1.5 it is 1 − 0.5
    effect = effect_of(rows_of([9, 8, 7, 2], [], [5, 4, 1, 1]), gate)
    assert {name: (axis.right, axis.of) for name, axis in effect.items()} == {
        "function_selection": (3, 4),
        "out_of_scope_calls": (0, 4),
        "out_of_scope_rejection": (4, 4),
    }


def test_of_thresholds_with_the_same_j_the_lowest_wins() -> None:
    gate = choose_gate(rows_of([4, 2], [], [3, 1]), 0)  # above 1: 2/2 − 1/2; above 3: 1/2 − 0/2
    assert gate.threshold == 1.5


def test_where_no_threshold_helps_every_call_passes() -> None:
    assert choose_gate([*rows_of([1, 2], [], []), Judged(None, Answer("none"), 0.0)], 0).threshold == 0.0
    assert choose_gate(rows_of([1, 2], [], [8, 9]), 0).threshold == 0.0


def test_calls_of_a_wrong_tool_earn_nothing_and_cost_nothing() -> None:
    rows = rows_of([9, 8], [1, 1, 1], [2, 2])
    gate = choose_gate(rows, 0)
    assert gate.threshold == 5.0
    assert effect_of(rows, None)["function_selection"].right == 2
    assert effect_of(rows, None)["function_selection"].of == 5


def test_a_tool_that_no_calibration_row_wants_is_left_out() -> None:
    rows = [*rows_of([9], [], [1]), Judged(None, Answer("call", "fly"), 30.0)]
    gate = choose_gate(rows, 0)
    assert gate.tools == ("open",)
    assert not gate.passes(Answer("call", "fly"), 30.0) and gate.passes(Answer("call", "open"), 30.0)
    document = gate_document(gate, rows, refusal="none", known_tools=["open", "fly", "wait"])
    assert document["tools_left_out"] == ["fly", "wait"]
    assert document["calibration"]["with_gate"]["out_of_scope_calls"]["right"] == 0


def test_a_score_that_is_the_threshold_passes_and_neighbouring_floats_are_kept_apart() -> None:
    high = float(np.nextafter(np.float32(3), np.float32(4)))
    gate = choose_gate(rows_of([high], [], [3.0]), 0)
    assert gate.threshold == high == float(np.float32(gate.threshold))
    assert gate.passes(Answer("call", "open"), high) and not gate.passes(Answer("call", "open"), 3.0)


def test_whatever_does_not_pass_is_a_refusal_by_the_documents_own_rule() -> None:
    gate = Gate(0, 5.0, ("open",))
    assert gate.gated(Answer("call", "open"), 4.9) == Answer("none")
    assert gate.gated(Answer("call", "open"), None) == Answer("none")
    assert gate.gated(Answer("call", "open"), 5.0) == Answer("call", "open")
    for answer in (Answer("broken"), Answer("prose"), Answer("none")):
        assert gate.gated(answer, 5.0) == Answer("none")


def test_a_begun_call_out_of_scope_is_declined_with_the_gate_and_a_call_without_it() -> None:
    rows = [*rows_of([9, 8], [], [2]), Judged(None, Answer("broken"), 7.0), Judged(None, Answer("none"), 0.0)]
    gate = choose_gate(rows, 0)
    assert (effect_of(rows, None)["out_of_scope_rejection"].right, len(rows[2:])) == (1, 3)
    assert effect_of(rows, gate)["out_of_scope_rejection"].right == 3
    found = gate_document(gate, rows, refusal="none", known_tools=["open"])
    assert found["passes"].endswith("anything else is a refusal")
    sides = [found["calibration"][side]["out_of_scope_rejection"]["right"] for side in ("without_gate", "with_gate")]
    assert sides == [1, 3] and found["remark"] == ""


def test_a_gate_that_separates_nothing_says_so() -> None:
    rows = [Judged("open", Answer("broken"), 3.0), Judged(None, Answer("broken"), 2.0)]
    found = gate_document(choose_gate(rows, 0), rows, refusal="none", known_tools=["open"])
    assert (found["youden_j"], found["clearance"]) == (0, None)
    assert found["remark"].startswith("nothing was separated")


def test_the_order_of_the_rows_decides_nothing() -> None:
    rows = rows_of([9, 8, 2, 7, 3], [6, 4], [5, 5, 1, 8.5])
    assert choose_gate(rows, 0) == choose_gate(rows[::-1], 0)


def test_the_document_has_everything_a_game_needs_and_round_trips_its_threshold() -> None:
    rows = rows_of([9, 8, 7.1], [], [5, 4.3])
    gate = choose_gate(rows, 7)
    document = json.loads(json.dumps(gate_document(gate, rows, refusal="none", known_tools=["open"])))
    assert np.float32(document["threshold"]) == np.float32(gate.threshold)
    assert document["score"]["refusal_id"] == 7 and document["score"]["refusal_token"] == "none"
    assert (document["chosen_on"], document["youden_j"]) == ("calibration", 1.0)
    assert document["clearance"] == pytest.approx(1.05, abs=1e-6)  # 7.1 − 6.05
    selection = document["calibration"]["without_gate"]["function_selection"]
    assert (selection["right"], selection["of"], selection["low"]) == (3, 3, pytest.approx(0.4385, abs=1e-4))


def prepared(kind: str, first: int = 40) -> dict[str, Any]:
    expect = {"kind": "call", "name": "open", "arguments": {}} if kind == "call" else {"kind": kind}
    return {"ids": [1, 2, first, 3], "prompt_tokens": 2, "expect": None if kind == "text" else expect}


def test_the_refusals_first_token_is_read_from_the_prepared_rows() -> None:
    assert refusal_of([prepared("call", 9), prepared("none"), prepared("none"), prepared("text", 3)]) == 40
    with pytest.raises(StageError, match=r"refusals begin with the tokens \[40, 41\]"):
        refusal_of([prepared("none"), prepared("none", 41)])
    with pytest.raises(StageError, match="no calibration row is out of scope"):
        refusal_of([prepared("call")])


def test_too_few_rows_of_either_kind_are_refused_with_both_counts() -> None:
    require_enough([prepared("call")] * 5 + [prepared("none")] * 5)
    for calls, refusals in ((4, 9), (9, 4), (0, 9)):
        with pytest.raises(StageError, match=f"{calls} calibration rows want a call and {refusals} want none"):
            require_enough([prepared("call")] * calls + [prepared("none")] * refusals)
    with pytest.raises(StageError, match="there is no calibration split"):
        require_enough([])


def test_rows_without_a_right_answer_are_not_judged() -> None:
    rows = [prepared("call"), prepared("text"), prepared("none")]
    answer = Answer("call", "open")
    assert judged_rows(rows, [answer] * 3, [1.0, 2.0, 3.0]) == [Judged("open", answer, 1.0), Judged(None, answer, 3.0)]
