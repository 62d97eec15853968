"""What a refusal says."""

from __future__ import annotations

from weights_bridge.errors import BudgetMissedError, StageError, all_at_once, unknown_name


def test_a_refusal_is_one_line_and_a_hint() -> None:
    assert str(StageError("x.json: not JSON", hint="make it again")) == "x.json: not JSON\n  hint: make it again"
    assert str(StageError("x.json: not JSON")) == "x.json: not JSON"


def test_a_missed_budget_has_an_exit_code_of_its_own() -> None:
    assert (StageError("a").exit_code, BudgetMissedError("a").exit_code) == (1, 3)


def test_faults_are_listed_sorted_and_counted_after_twenty() -> None:
    lines = str(all_at_once("heads:", [f"fault {i:02}" for i in reversed(range(23))])).splitlines()
    assert lines[0] == "heads:"
    assert lines[1:21] == [f"  fault {i:02}" for i in range(20)]
    assert lines[21:] == ["  … and 3 more"]


def test_exactly_twenty_faults_have_no_rest() -> None:
    assert "more" not in str(all_at_once("heads:", map(str, range(20))))


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    assert unknown_name("stage", "trian", ["train", "export"]).hint == "did you mean train? known: export, train"
    assert unknown_name("stage", "zzz", ["train"]).hint == "known: train"
    assert unknown_name("stage", "zzz", []).hint == "known: none"
