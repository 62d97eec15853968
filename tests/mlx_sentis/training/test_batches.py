"""Batches by hand, and the order of an epoch."""

from __future__ import annotations

import numpy as np

from mlx_sentis.training.batches import epoch_order, make_batch, rounded_up

ROWS = [
    {"id": "a", "ids": [5, 6, 7, 8, 9], "trained": [[3, 5]]},
    {"id": "b", "ids": [5, 6, 10, 11, 12, 13, 14], "trained": [[3, 4], [6, 7]]},
]


def test_positions_are_those_of_the_hidden_state_before_the_label() -> None:
    batch = make_batch(ROWS, prefix_tokens=2, pad_id=0)
    assert batch.prefix.tolist() == [[5, 6]]
    assert batch.rows.shape == (2, 16)
    assert batch.rows[0].tolist() == [7, 8, 9] + [0] * 13
    assert batch.rows[1].tolist() == [10, 11, 12, 13, 14] + [0] * 11
    # row a: targets 3, 4 from states 2, 3 → 0, 1 behind the prefix; row b: targets 3, 6 from 2, 5 → 16 + 0, 16 + 3
    assert batch.positions.tolist() == [0, 1, 16, 19] + [0] * 12
    assert batch.labels.tolist() == [8, 9, 11, 14] + [0] * 12
    assert batch.weights.tolist() == [1.0] * 4 + [0.0] * 12
    assert (batch.names, batch.trained_tokens) == (("a", "b"), 4)


def test_without_a_prefix_positions_count_from_the_first_token() -> None:
    batch = make_batch(ROWS, prefix_tokens=0, pad_id=1)
    assert batch.prefix.shape == (1, 0)
    assert batch.positions[:4].tolist() == [2, 3, 18, 21]
    assert batch.rows[0].tolist() == [5, 6, 7, 8, 9] + [1] * 11
    flat = batch.rows.reshape(-1)
    assert [flat[p + 1] for p in batch.positions[:4]] == batch.labels[:4].tolist()  # the next token is the label


def test_shapes_come_in_multiples_of_sixteen() -> None:
    assert [rounded_up(n) for n in (0, 1, 15, 16, 17, 33)] == [0, 16, 16, 16, 32, 48]
    long = {"id": "c", "ids": list(range(40)), "trained": [[10, 40]]}
    batch = make_batch([long], 3, 0)
    assert (batch.rows.shape, batch.labels.shape, batch.trained_tokens) == ((1, 48), (32,), 30)


def test_an_epoch_visits_each_row_once_and_its_last_batch_may_be_smaller() -> None:
    batches = list(epoch_order(23, 8, seed=42, epoch=0))
    assert [len(batch) for batch in batches] == [8, 8, 7]
    assert sorted(i for batch in batches for i in batch) == list(range(23))


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    orders = [list(epoch_order(23, 8, seed, epoch)) for seed, epoch in ((42, 0), (42, 0), (42, 1), (43, 0))]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != orders[3]
    assert orders[2] != orders[3]


def test_the_order_is_a_shuffle() -> None:
    order = np.array([i for batch in epoch_order(1000, 16, 0, 0) for i in batch])
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1
