"""Batches by hand, and the order of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_rows import nested_rows

from mlx_sentis.training.batches import make_batch, plan_epoch
from mlx_sentis.training.segments import rounded_up
from mlx_sentis.training.sharing import Sharing
from weights_bridge.settings import TrainSettings

ROWS = [
    {"id": "a", "ids": [5, 6, 7, 8, 9], "trained": [[3, 5]]},
    {"id": "b", "ids": [5, 6, 10, 11, 12, 13, 14], "trained": [[3, 4], [6, 7]]},
]


def test_positions_are_those_of_the_hidden_state_before_the_label() -> None:
    batch = make_batch(ROWS, 2, pad_id=0)
    prefix, rows = batch.passes
    assert prefix.ids.tolist() == [[5, 6]]
    assert (rows.parent, rows.first, rows.ids.shape) == (0, 0, (2, 16))
    assert rows.ids[0].tolist() == [7, 8] + [0] * 14  # the last token predicts nothing: nobody reads it
    assert rows.ids[1].tolist() == [10, 11, 12, 13] + [0] * 12
    # row a: targets 3, 4 from states 2, 3 → 0, 1 behind the prefix; row b: targets 3, 6 from 2, 5 → 16 + 0, 16 + 3
    assert rows.positions.tolist() == [0, 1, 16, 19] + [0] * 12
    assert batch.labels.tolist() == [8, 9, 11, 14] + [0] * 12
    assert batch.weights.tolist() == [1.0] * 4 + [0.0] * 12
    assert (batch.names, batch.trained_tokens, batch.shared_tokens) == (("a", "b"), 4, 2)
    assert (batch.computed_tokens, batch.plain_tokens, batch.real_tokens) == (2 + 32, 32, 4 + 6)


def test_without_a_prefix_positions_count_from_the_first_token() -> None:
    batch = make_batch(ROWS, 0, pad_id=1)
    (rows,) = batch.passes
    assert (rows.parent, rows.leaf, batch.shared_tokens) == (-1, True, 0)
    assert rows.positions[:4].tolist() == [2, 3, 18, 21]
    assert rows.ids[0].tolist() == [5, 6, 7, 8] + [1] * 12


def test_states_before_the_first_label_of_any_row_are_not_read() -> None:
    ids = list(range(6, 86))
    rows = [{"id": "a", "ids": ids, "trained": [[70, 80]]}, {"id": "b", "ids": ids[:75], "trained": [[74, 75]]}]
    (leaf,) = make_batch(rows, 0, pad_id=0).passes
    assert (leaf.ids.shape, leaf.first) == ((2, 80), 64)
    # row a: states 69 … 78 of the last 16; row b: state 73
    assert leaf.positions[:11].tolist() == [*range(5, 15), 16 + 9]


def test_labels_stand_in_the_order_of_the_leaves() -> None:
    rows = nested_rows()
    batch = make_batch(rows, Sharing(48), 0)
    labels = {row["id"]: row["ids"][-4:] for row in rows}
    found = batch.labels[: batch.trained_tokens].reshape(-1, 4).tolist()
    assert sorted(found) == sorted(labels.values())
    assert found != list(labels.values())  # the leaves of a subtree come first
    at = 0
    for leaf in (one for one in batch.passes if one.leaf):
        positions = leaf.positions[: 4 * len(leaf.ids)]
        row, column = np.divmod(positions, leaf.ids.shape[1] - leaf.first)
        following = leaf.ids[row, np.minimum(column + leaf.first + 1, leaf.ids.shape[1] - 1)]
        wanted = batch.labels[at : at + len(positions)]
        # each label is the token behind the state that predicts it; the last one of a row is not among the inputs
        matches = (following == wanted).reshape(-1, 4)[:, :3]
        assert matches.all()
        at += len(positions)


def test_shapes_come_in_multiples_of_sixteen() -> None:
    assert [rounded_up(n) for n in (0, 1, 15, 16, 17, 33)] == [0, 16, 16, 16, 32, 48]
    long = {"id": "c", "ids": list(range(41)), "trained": [[10, 41]]}
    batch = make_batch([long], 3, 0)
    assert (batch.passes[1].ids.shape, batch.labels.shape, batch.trained_tokens) == ((1, 48), (32,), 31)


def made(lengths: list[int]) -> list[dict[str, Any]]:
    return [{"id": str(i), "ids": [7] * n, "trained": [[n - 2, n]]} for i, n in enumerate(lengths)]


def padded_over_real(rows: list[dict[str, Any]], plan: list[list[int]]) -> float:
    batches = [make_batch([rows[i] for i in chosen], 0, 0) for chosen in plan]
    return sum(b.computed_tokens for b in batches) / sum(b.real_tokens for b in batches)


def test_rows_of_one_length_stand_together_and_the_switch_turns_that_off() -> None:
    rows = made([10, 500] * 32)
    plan = plan_epoch(rows, TrainSettings(batch_rows=8, buckets=True), 0)
    assert [len({len(rows[i]["ids"]) for i in batch}) for batch in plan] == [1] * 8
    assert padded_over_real(rows, plan) < 1.1
    assert padded_over_real(rows, plan_epoch(rows, TrainSettings(batch_rows=8, buckets=False), 0)) > 1.5


@pytest.mark.parametrize(
    "words", [{"batch_rows": 8}, {"batch_rows": 8, "buckets": True}, {"batch_tokens": 600, "buckets": True}]
)
def test_an_epoch_visits_each_row_once_in_an_order_of_seed_and_epoch(words: dict[str, Any]) -> None:
    rows = made(np.random.default_rng(0).integers(10, 200, 1003).tolist())
    plans = [
        plan_epoch(rows, TrainSettings(**words, seed=seed), epoch) for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    assert plans[0] == plans[1]
    assert all(plans[0] != other for other in plans[2:])
    for plan in plans:
        assert sorted(i for batch in plan for i in batch) == list(range(1003))


def test_a_batch_has_the_asked_rows_and_one_of_an_epoch_may_be_smaller() -> None:
    plan = plan_epoch(made([20] * 23), TrainSettings(batch_rows=8), 0)
    assert sorted(len(batch) for batch in plan) == [7, 8, 8]


def test_a_token_budget_bounds_the_padded_tokens_and_a_longer_row_stands_alone() -> None:
    rows = made([30] * 40 + [90] * 10 + [700])
    plan = plan_epoch(rows, TrainSettings(batch_tokens=320, buckets=True), 0)
    for batch in plan:
        assert len(batch) == 1 or make_batch([rows[i] for i in batch], 0, 0).computed_tokens <= 320
    assert [50] in plan
    assert max(len(batch) for batch in plan) == 10


def test_the_order_is_a_shuffle() -> None:
    rows = made([20] * 1000)
    order = np.array([i for batch in plan_epoch(rows, TrainSettings(batch_rows=16), 0) for i in batch])
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1


def test_batches_of_one_length_do_not_follow_each_other_by_length() -> None:
    rows = made(list(range(16, 1040)))
    plan = plan_epoch(rows, TrainSettings(batch_rows=8, buckets=True), 0)
    means = [np.mean([len(rows[i]["ids"]) for i in batch]) for batch in plan]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
