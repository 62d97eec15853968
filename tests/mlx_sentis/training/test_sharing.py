"""What a batch shares, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from training_rows import PREFIX, nested_rows, rendered_rows

from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.segments import LEAST_SAVED, computed_tokens
from mlx_sentis.training.sharing import NOTHING_SHARED, Sharing, plan_segments, shared_prefix_tokens, sharing_of


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
