"""What a refusal says."""

from __future__ import annotations

from weights_bridge.errors import (
    BudgetMissedError,
    StageError,
    UsedWronglyError,
    all_at_once,
    counted,
    unknown_name,
)


def test_a_refusal_is_one_line_and_a_hint() -> None:
    assert str(StageError("x.json: not JSON", hint="make it again")) == "x.json: not JSON\n  hint: make it again"
    assert str(StageError("x.json: not JSON")) == "x.json: not JSON"


def test_a_missed_budget_has_an_exit_code_of_its_own() -> None:
    assert (StageError("a").exit_code, UsedWronglyError("a").exit_code, BudgetMissedError("a").exit_code) == (1, 2, 3)


def test_one_is_singular() -> None:
    assert (counted(1, "row"), counted(0, "row"), counted(2, "row")) == ("1 row", "0 rows", "2 rows")


def test_line_9_comes_before_line_10() -> None:
    lines = str(all_at_once("bad:", ["a.jsonl:10: x", "a.jsonl:9: x", "a.jsonl:100: x", "a2.jsonl:1: x"])).splitlines()
    assert lines[1:] == ["  a2.jsonl:1: x", "  a.jsonl:9: x", "  a.jsonl:10: x", "  a.jsonl:100: x"]


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
