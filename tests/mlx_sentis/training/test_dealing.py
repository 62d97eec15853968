"""Which stream runs what, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from training_rows import rendered_rows

from mlx_sentis.training.dealing import PASS, longest_first
from mlx_sentis.training.segments import Segment, computed_tokens
from mlx_sentis.training.sharing import NOTHING_SHARED, Sharing, plan_segments


def loads(passes: list[Segment], streams: int) -> list[int]:
    return [sum(one.computed_tokens for one in passes if one.stream == n) for n in range(streams)]


@pytest.mark.parametrize(("count", "pieces"), [(16, [(0, 400, -1, 0)]), (4, [(0, 272, -1, 0), (272, 400, 0, 1)])])
def test_streams_take_consecutive_equal_parts_and_every_row_and_token_once(count: int, pieces: list[Any]) -> None:
    """A prefix longer than a stream's part is cut, a shorter one keeps its stream's rest for rows."""
    rows = rendered_rows(*range(30, 30 + 2 * count, 2), prefix=400)
    whole, cut = (plan_segments(rows, Sharing(400, streams=n)) for n in (1, 2))
    assert [(one.start, one.stop, one.parent, one.stream) for one in cut if not one.leaf] == pieces
    assert sorted(i for one in cut if one.leaf for i in one.rows) == list(range(count))
    assert all(one.parent == len(pieces) - 1 for one in cut if one.leaf)
    assert [one.stream for one in cut] == sorted(one.stream for one in cut)  # forward, nobody waits for a later one
    first, second = loads(cut, 2)
    assert abs(first - second) < 0.1 * (first + second)
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


def test_few_rows_of_very_different_length_are_dealt_the_longest_first() -> None:
    """In order of length the streams would have 576 and 320 tokens."""
    rows = rendered_rows(40, 130, 240, 320, prefix=0)
    cut = plan_segments(rows, Sharing(0, nested=False, streams=2))
    assert sorted(i for one in cut for i in one.rows) == [0, 1, 2, 3]
    assert [sorted(i for one in cut if one.stream == n for i in one.rows) for n in (0, 1)] == [[0, 3], [1, 2]]
    assert max(loads(cut, 2)) + 2 * PASS < 576


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_a_pass_never_waits_for_a_later_stream(streams: int) -> None:
    groups = [rendered_rows(*range(20, 60, 5), prefix=200, seed=seed) for seed in (1, 2)]
    rows = [
        row | {"ids": [7] * 64 + row["ids"], "trained": [[a + 64, b + 64] for a, b in row["trained"]]}
        for group in groups
        for row in group
    ]
    cut = plan_segments(rows, Sharing(64, streams=streams))
    assert sum(not one.leaf for one in cut) >= 3
    assert all(one.parent < index for index, one in enumerate(cut))
    assert all(cut[one.parent].stream <= one.stream < streams for one in cut if one.parent >= 0)
    assert sorted(i for one in cut if one.leaf for i in one.rows) == list(range(16))


def test_rows_go_to_no_stream_before_their_prefixs_last_however_idle_it_is() -> None:
    widths = {0: 64, 1: 96, 2: 80}
    assert longest_first([0, 2, 1], widths, [0, 320, 300], 500, first=1) == {2: [1, 0], 1: [2]}
    assert longest_first([0, 2, 1], widths, [0, 320, 300], 500, first=0) == {0: [1, 2, 0]}
