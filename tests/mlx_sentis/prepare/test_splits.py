"""Cutting a single file: by seed, by class, never through a text."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.splits import check_no_leak, cut, repeated, shares_of
from weights_bridge.errors import StageError
from weights_bridge.settings import DataSettings

SHARES = {"valid": 0.1, "calibration": 0.1, "holdout": 0.2}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}


def row(text: str, name: str = "", line: int = 1, answer: str = "none") -> Row:
    """Return a row that wants a call of `name`, or the answer itself when there is no name."""
    last: dict[str, Any] = {"role": "assistant", "content": "" if name else answer}
    if name:
        last["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": {}}}]
    return Row([{"role": "user", "content": text}, last], [TOOL], f"a.jsonl:{line}")


def many() -> list[Row]:
    kinds = ["open"] * 40 + ["move_to"] * 20 + [""] * 30
    return [row(f"text {line}", name, line) for line, name in enumerate(kinds, 1)]


def test_each_class_is_cut_by_the_shares() -> None:
    parts = cut(many(), SHARES, 42)
    counts = {split: Counter(one.kind for one in rows) for split, rows in parts.items()}
    assert counts["holdout"] == {"open": 8, "move_to": 4, "none": 6}
    assert counts["valid"] == counts["calibration"] == {"open": 4, "move_to": 2, "none": 3}
    assert counts["train"] == {"open": 24, "move_to": 12, "none": 18}


def test_the_cut_depends_on_seed_and_text_not_on_the_order() -> None:
    rows = many()
    shuffled = random.Random(1).sample(rows, len(rows))
    first = {split: {one.source for one in part} for split, part in cut(rows, SHARES, 42).items()}
    again = {split: {one.source for one in part} for split, part in cut(shuffled, SHARES, 42).items()}
    other = {split: {one.source for one in part} for split, part in cut(rows, SHARES, 43).items()}
    assert first == again
    assert first != other


def test_rows_keep_their_order_within_a_split() -> None:
    for part in cut(many(), SHARES, 42).values():
        lines = [int(one.source.rpartition(":")[2]) for one in part]
        assert lines == sorted(lines)


def test_rows_that_say_the_same_stay_together() -> None:
    rows = [row(f"text {index // 3}", "open", index) for index in range(60)]
    parts = cut(rows, SHARES, 42)
    check_no_leak(parts)
    assert sum(map(len, parts.values())) == 60


def test_a_small_class_is_trained_first_and_tested_next() -> None:
    parts = cut([*many(), row("rare", "wave"), row("few one", "bow"), row("few two", "bow")], SHARES, 42)
    kinds = {split: {one.kind for one in part} for split, part in parts.items()}
    assert "wave" in kinds["train"]
    assert "bow" in kinds["train"]
    assert "bow" in kinds["holdout"]
    assert "bow" not in kinds["valid"]


def test_five_texts_give_every_split_one_and_three_are_too_few() -> None:
    sizes = {split: len(part) for split, part in cut(many()[:5], SHARES, 42).items()}
    assert sizes == {"train": 2, "valid": 1, "calibration": 1, "holdout": 1}
    with pytest.raises(
        StageError, match="3 rows with different texts are too few to cut: nothing left for calibration"
    ):
        cut(many()[:3], SHARES, 42)


def test_a_share_of_zero_gives_no_rows() -> None:
    assert cut(many(), SHARES | {"calibration": 0.0}, 42)["calibration"] == []


@pytest.mark.parametrize("wrong", [DataSettings(holdout_share=0.9), DataSettings(valid_share=-0.1)])
def test_shares_that_leave_nothing_to_train_are_refused(wrong: DataSettings) -> None:
    with pytest.raises(StageError, match="wanted shares from 0 that leave rows to train"):
        shares_of(wrong)


def test_a_text_in_two_splits_is_named_with_both_places() -> None:
    splits = {"train": [row("Open the gate", "open", 3)], "holdout": [row(" Open the gate ", "move_to", 9)]}
    with pytest.raises(StageError, match=r"a\.jsonl:9 and a\.jsonl:3: the same text 'Open the gate'"):
        check_no_leak(splits)


def test_repeats_are_counted_and_contradictions_named() -> None:
    twice, contradictions = repeated([row("a", "open", 1), row("a", "open", 2), row("a", "", 3), row("b", "open", 4)])
    assert twice == 1
    assert contradictions == ["a.jsonl:1 and a.jsonl:3 answer 'a' differently"]
