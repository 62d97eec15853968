"""What a batch shares, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_rows import PREFIX, nested_rows, rendered_rows

from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.sharing import (
    LEAST_SAVED,
    NOTHING_SHARED,
    Sharing,
    computed_tokens,
    plan_segments,
    shared_prefix_tokens,
    sharing_of,
)


def row(ids: list[int], start: int) -> dict[str, Any]:
    return {"id": "r", "ids": ids, "trained": [[start, len(ids)]]}


def test_shared_tokens_are_counted_up_to_the_first_difference() -> None:
    assert shared_prefix_tokens([row([1, 2, 3, 4, 5], 4), row([1, 2, 9, 4, 5], 4)]) == 2
    assert shared_prefix_tokens([row([1, 2, 3, 4, 5], 4), row([1, 2, 3, 4, 5], 4), row([7, 2, 3, 4, 5], 4)]) == 0


def test_the_state_that_predicts_the_first_label_is_never_shared() -> None:
    same = [1, 2, 3, 4, 5]
    assert shared_prefix_tokens([row(same, 4), row(same, 3)]) == 2
    assert shared_prefix_tokens([row(same, 1), row(same, 4)]) == 0


def test_a_row_that_ends_early_bounds_what_is_shared() -> None:
    assert shared_prefix_tokens([row(list(range(50)), 40), row(list(range(10)), 9)]) == 8
    assert shared_prefix_tokens([row(list(range(10)), 9), row(list(range(50)), 40)]) == 8


def test_every_row_is_the_path_of_its_segments() -> None:
    rows = nested_rows()
    segments = plan_segments(rows, Sharing(PREFIX))
    for index, row in enumerate(rows):
        leaf = next(one for one in segments if one.leaf and index in one.rows)
        path, at = [leaf], leaf.parent
        while at >= 0:
            path.insert(0, segments[at])
            at = segments[at].parent
        assert [one.start for one in path] == [0, *(one.stop for one in path[:-1])]
        assert all(
            row["ids"][one.start : one.stop] == rows[one.rows[0]]["ids"][one.start : one.stop] for one in path[:-1]
        )
        assert path[-2].stop <= row["trained"][0][0] - 1  # no label, and no state that predicts one, is shared


def test_segments_beyond_the_prefix_come_in_multiples_of_sixteen_and_save_enough() -> None:
    segments = plan_segments(nested_rows(), Sharing(PREFIX))
    nested = [one for one in segments if not one.leaf and one.parent >= 0]
    assert len(nested) == 3
    assert any(one.parent > 0 for one in nested)  # three levels
    for one in nested:
        assert (one.stop - one.start) % 16 == 0
        assert (len(one.rows) - 1) * (one.stop - one.start) >= LEAST_SAVED


def test_a_batch_that_saves_too_little_is_run_plainly() -> None:
    rows = rendered_rows(40, 40, prefix=16)
    (leaf,) = plan_segments(rows, Sharing(16))
    assert (leaf.leaf, leaf.start, leaf.rows) == (True, 0, [0, 1])
    plain, shared = computed_tokens([leaf]), computed_tokens(plan_segments(rows, 16))
    assert plain / shared < 1.3
    rows = rendered_rows(40, 40, prefix=160)
    assert [one.stop - one.start for one in plan_segments(rows, Sharing(160))] == [160, 39]


def test_a_switch_turns_sharing_off() -> None:
    rows = nested_rows()
    assert sharing_of(rows, enabled=False, streams=1) == NOTHING_SHARED
    assert all(one.leaf and one.start == 0 for one in plan_segments(rows, NOTHING_SHARED))
    assert sharing_of(rows).prefix_tokens == PREFIX
    assert sharing_of(rows[:1]).prefix_tokens == 0


def test_rows_that_begin_alike_share_more_than_the_data_set_does() -> None:
    rows = [row for row in nested_rows() if row["id"].startswith("a")]
    root = plan_segments(rows, Sharing(PREFIX))[0]
    assert root.stop == PREFIX + 64
    assert root.rows == list(range(len(rows)))


def test_the_plan_does_not_depend_on_anything_but_the_rows() -> None:
    rows = nested_rows()
    assert plan_segments(rows, Sharing(PREFIX)) == plan_segments(nested_rows(), Sharing(PREFIX))
    first, second = make_batch(rows, Sharing(PREFIX), 0), make_batch(rows, Sharing(PREFIX), 0)
    assert all(np.array_equal(one.ids, other.ids) for one, other in zip(first.passes, second.passes, strict=True))


@pytest.mark.parametrize(("count", "pieces"), [(16, [(0, 400, -1, 0)]), (4, [(0, 272, -1, 0), (272, 400, 0, 1)])])
def test_streams_take_consecutive_equal_parts_and_every_row_and_token_once(count: int, pieces: list[Any]) -> None:
    """A prefix longer than a stream's part is cut, a shorter one keeps its stream's rest for rows."""
    rows = rendered_rows(*range(30, 30 + 2 * count, 2), prefix=400)
    whole, cut = (plan_segments(rows, Sharing(400, streams=n)) for n in (1, 2))
    assert [(one.start, one.stop, one.parent, one.stream) for one in cut if not one.leaf] == pieces
    assert sorted(i for one in cut if one.leaf for i in one.rows) == list(range(count))
    assert all(one.parent == len(pieces) - 1 for one in cut if one.leaf)
    assert [one.stream for one in cut] == sorted(one.stream for one in cut)  # forward, nobody waits for a later one
    loads = [sum(one.computed_tokens for one in cut if one.stream == n) for n in (0, 1)]
    assert abs(loads[0] - loads[1]) < 0.1 * sum(loads)
    assert computed_tokens(cut) < 1.05 * computed_tokens(whole)


def test_little_work_is_not_cut() -> None:
    rows = rendered_rows(20, 20, prefix=70)
    many, one = (plan_segments(rows, Sharing(70, streams=n)) for n in (4, 1))
    assert [(a.start, a.stop, a.rows) for a in many] == [(a.start, a.stop, a.rows) for a in one]


def test_rows_of_very_different_length_are_passes_of_their_own() -> None:
    rows = rendered_rows(20, 300, 25, 310, 90, prefix=2)
    segments = plan_segments(rows, NOTHING_SHARED)
    assert [one.rows for one in segments] == [[0, 2], [4], [1, 3]]
    assert computed_tokens(segments) == 2 * 32 + 96 + 2 * 320
    alike = rendered_rows(20, 40, 25, 31, prefix=2)
    assert [one.rows for one in plan_segments(alike, NOTHING_SHARED)] == [[0, 1, 2, 3]]  # too little to save
