"""Cutting the training rows: by seed, by class, never through a group of rows that say the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import SPLITS
from mlx_sentis.prepare.splits import check_no_leak, cut, repeats, shares_of
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.settings import DataSettings

SHARES = {"valid": 0.1, "calibration": 0.1, "holdout": 0.2}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}
Indexed = Callable[..., RowIndex]


def row(text: str, name: str = "", line: int = 1, answer: str = "none") -> Row:
    """Return a row that wants a call of `name`, or the answer itself when there is no name."""
    last: dict[str, Any] = {"role": "assistant", "content": "" if name else answer}
    if name:
        last["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": {}}}]
    return Row([{"role": "user", "content": text}, last], [TOOL], f"a.jsonl:{line}")


def many() -> list[Row]:
    kinds = ["open"] * 40 + ["move_to"] * 20 + [""] * 30
    return [row(f"text {line}", name, line) for line, name in enumerate(kinds, 1)]


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[Indexed]:
    """Return an index of some rows, by default all given as training rows."""
    made: list[RowIndex] = []

    def make(rows: Sequence[Row], seed: int = 42, **others: Sequence[Row]) -> RowIndex:
        index = RowIndex(seed, tmp_path)
        made.append(index)
        for split, given in {"train": rows, **others}.items():
            for one in given:
                index.add(split, one)
        return index

    yield make
    for index in made:
        index.__exit__(None, None, None)


def parts(rows: Sequence[Row], index: RowIndex, shares: Any = None, groups: Any = None) -> dict[str, list[Row]]:
    """Cut and return split to rows."""
    places = cut(index, index.texts if groups is None else np.array(groups), SHARES if shares is None else shares)
    return {split: [rows[at] for at in np.flatnonzero(places == number)] for number, split in enumerate(SPLITS)}


def sources(found: dict[str, list[Row]]) -> dict[str, set[str]]:
    return {split: {one.source for one in rows} for split, rows in found.items()}


def test_each_class_is_cut_by_the_shares(indexed: Indexed) -> None:
    rows = many()
    counts = {split: Counter(one.kind for one in part) for split, part in parts(rows, indexed(rows)).items()}
    assert counts["holdout"] == {"open": 8, "move_to": 4, "none": 6}
    assert counts["valid"] == counts["calibration"] == {"open": 4, "move_to": 2, "none": 3}
    assert counts["train"] == {"open": 24, "move_to": 12, "none": 18}


def test_the_cut_depends_on_seed_and_text_not_on_the_order(indexed: Indexed) -> None:
    rows = many()
    shuffled = random.Random(1).sample(rows, len(rows))
    first = sources(parts(rows, indexed(rows)))
    again = sources(parts(shuffled, indexed(shuffled)))
    other = sources(parts(rows, indexed(rows, seed=43)))
    assert first == again
    assert first != other


def test_rows_that_say_the_same_stay_together(indexed: Indexed) -> None:
    rows = [row(f"text {index // 3}", "open", index) for index in range(60)]
    found = parts(rows, indexed(rows))
    texts = [{one.user_text for one in part} for part in found.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 20
    assert sum(map(len, found.values())) == 60


def test_groups_of_unequal_size_are_never_cut_and_still_meet_the_shares(indexed: Indexed) -> None:
    sizes = [1, 2, 3, 5, 8, 13] * 20
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    rows = [row(f"text {line}", "open", line) for line in range(len(groups))]
    found = parts(rows, indexed(rows), groups=groups)
    places = {group: set() for group in groups}
    for split, part in found.items():
        for one in part:
            places[groups[int(one.source.rpartition(":")[2])]].add(split)
    assert all(len(splits) == 1 for splits in places.values())
    shares = {split: len(part) / len(rows) for split, part in found.items()}
    assert shares == pytest.approx({"train": 0.6, "valid": 0.1, "calibration": 0.1, "holdout": 0.2}, abs=0.01)


def test_a_group_larger_than_a_share_is_trained(indexed: Indexed) -> None:
    rows = [row(f"text {line}", "open", line) for line in range(100)]
    found = parts(rows, indexed(rows), groups=[0] * 60 + list(range(1, 41)))
    assert {one.source for one in rows[:60]} <= sources(found)["train"]
    assert len(found["holdout"]) == 20


def test_a_group_of_two_classes_counts_for_the_rarer_one(indexed: Indexed) -> None:
    # every row of `wave` says what a row of `open` says too: cut as `open`, held-out rows could all miss `wave`
    rows = [row(f"text {line}", "open", line) for line in range(100)]
    rows += [row(f"text {line}", "wave", 100 + line) for line in range(10)]
    found = parts(rows, indexed(rows))
    assert Counter(one.kind for one in found["holdout"])["wave"] == 2


def test_a_small_class_is_trained_first_and_tested_next(indexed: Indexed) -> None:
    rows = [*many(), row("rare", "wave"), row("few one", "bow"), row("few two", "bow")]
    kinds = {split: {one.kind for one in part} for split, part in parts(rows, indexed(rows)).items()}
    assert "wave" in kinds["train"]
    assert "bow" in kinds["train"]
    assert "bow" in kinds["holdout"]
    assert "bow" not in kinds["valid"]


def test_many_classes_of_one_row_are_dealt_by_the_shares_all_the_same(indexed: Indexed) -> None:
    rows = [row(f"text {line}", f"tool_{line}", line) for line in range(100)]
    assert {split: len(part) for split, part in parts(rows, indexed(rows)).items()} == {
        "train": 60,
        "valid": 10,
        "calibration": 10,
        "holdout": 20,
    }


def test_five_texts_give_every_split_one_and_three_are_too_few(indexed: Indexed) -> None:
    rows = many()[:5]
    assert {split: len(part) for split, part in parts(rows, indexed(rows)).items()} == {
        "train": 2,
        "valid": 1,
        "calibration": 1,
        "holdout": 1,
    }
    with pytest.raises(
        StageError, match="3 rows with different texts are too few to cut: nothing left for calibration"
    ):
        parts(rows[:3], indexed(rows[:3]))


def test_one_row_is_too_few(indexed: Indexed) -> None:
    rows = many()[:1]
    with pytest.raises(StageError, match=r"^1 row is too few to cut: nothing left for valid, calibration, holdout"):
        parts(rows, indexed(rows))


def test_rows_that_all_say_the_same_cannot_be_cut_and_the_error_says_what_to_change(indexed: Indexed) -> None:
    rows = many()
    with pytest.raises(StageError, match="90 rows with different texts in 2 groups that say the same") as caught:
        parts(rows, indexed(rows), groups=[0] * 60 + [1] * 30)
    assert "data.near_duplicate" in caught.value.hint


def test_a_share_of_zero_gives_no_rows(indexed: Indexed) -> None:
    rows = many()
    assert parts(rows, indexed(rows), SHARES | {"calibration": 0.0})["calibration"] == []


def test_only_training_rows_are_cut(indexed: Indexed) -> None:
    rows, held = many(), [row(f"held {line}", "open", 1000 + line) for line in range(7)]
    index = indexed(rows, holdout=held)
    found = parts([*rows, *held], index, {"valid": 0.1, "calibration": 0.1})
    assert found["holdout"] == held


@pytest.mark.parametrize("wrong", [DataSettings(holdout_share=0.9), DataSettings(valid_share=-0.1)])
def test_shares_that_leave_nothing_to_train_are_refused(wrong: DataSettings) -> None:
    with pytest.raises(UsedWronglyError, match="wanted shares from 0 that leave rows to train"):
        shares_of(wrong)


def test_a_text_in_two_splits_is_named_with_both_places(indexed: Indexed) -> None:
    index = indexed([row("Open the gate", "open", 3)], holdout=[row(" Open the gate ", "move_to", 9)])
    with pytest.raises(StageError, match=r"a\.jsonl:9 and a\.jsonl:3: the same text 'Open the gate'"):
        check_no_leak(index)


def test_repeats_are_counted_and_contradictions_paired_with_the_first_row_of_their_split(indexed: Indexed) -> None:
    rows = [row("a", "open", 1), row("b", "open", 2), row("a", "open", 3), row("a", "", 4), row("a", "open", 5)]
    twice, pairs = repeats(indexed(rows), np.zeros(5, np.uint8))
    assert twice == {"train": 2, "valid": 0, "calibration": 0, "holdout": 0}
    assert pairs == [(0, 3)]
    twice, pairs = repeats(indexed(rows), np.array([0, 0, 3, 3, 3], np.uint8))
    assert twice["holdout"] == 1
    assert pairs == [(2, 3)]


def test_a_row_that_repeats_a_contradiction_is_counted_as_a_repeat(indexed: Indexed) -> None:
    rows = [row("a", "open", 1), row("a", "", 2), row("a", "", 3)]
    twice, pairs = repeats(indexed(rows), np.zeros(3, np.uint8))
    assert (twice["train"], pairs) == (1, [(0, 1), (0, 2)])


def test_plain_texts_contradict_nothing_and_repeat_what_is_the_same(indexed: Indexed) -> None:
    texts = [Row([{"role": "assistant", "content": text}], [], f"a.txt:{n}") for n, text in enumerate("abcb")]
    twice, pairs = repeats(indexed(texts), np.zeros(4, np.uint8))
    assert (twice["train"], pairs) == (1, [])


def test_the_same_text_under_other_tools_is_no_contradiction(indexed: Indexed) -> None:
    one = row("a", "open", 1)
    other = Row(row("a", "", 2).messages, [], "a.jsonl:2")
    assert repeats(indexed([one, other]), np.zeros(2, np.uint8))[1] == []
