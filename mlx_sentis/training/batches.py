"""Batches of few shapes: rows padded on the right to a multiple of 16, labels gathered and padded likewise.

Legend: `B` rows, `P` prefix tokens, `S` padded tokens behind the prefix, `N` padded count of labelled positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, counted

MULTIPLE = 16  # every new shape is compiled once; multiples keep them few


@dataclass(frozen=True)
class Batch:
    """One batch as integer arrays.

    Attributes:
        prefix: [1, P] ids shared by all rows; P may be 0.
        rows: [B, S] ids behind the prefix, padded with `pad_id` on the right (causal: nobody reads them).
        positions: [N] flat indices into [B · S] of the hidden states that predict a label.
        labels: [N] the ids they must predict.
        weights: [N] 1.0 for a label, 0.0 for padding of N.
        names: the rows' ids, for messages.
    """

    prefix: Array
    rows: Array
    positions: Array
    labels: Array
    weights: Array
    names: tuple[str, ...]

    @property
    def trained_tokens(self) -> int:
        return int(self.weights.sum())


def require_batch(rows: int, batch_rows: int) -> None:
    """Refuse a batch that the training rows cannot fill.

    Raises:
        StageError: fewer rows than one batch.
    """
    if rows < batch_rows:
        what = f"split train: {counted(rows, 'row')} cannot fill one batch of {batch_rows}"
        raise StageError(what, hint=f"--set train.batch_rows={max(1, rows)}, or add rows")


def rounded_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE


def make_batch(rows: list[dict[str, Any]], prefix_tokens: int, pad_id: int) -> Batch:
    """Return the batch of some prepared rows.

    Args:
        rows: prepared rows (`ids`, `trained`, `id`).
        prefix_tokens: P, at most `shared_prefix_tokens(rows)`.
        pad_id: the padding token; it is never a label here, even where it equals the end token.
    """
    width = rounded_up(max(len(row["ids"]) for row in rows) - prefix_tokens)
    ids = np.full((len(rows), width), pad_id, np.int32)
    positions, labels = [], []
    for index, row in enumerate(rows):
        tail = row["ids"][prefix_tokens:]
        ids[index, : len(tail)] = tail
        for start, end in row["trained"]:
            for target in range(start, end):
                positions.append(index * width + target - 1 - prefix_tokens)
                labels.append(row["ids"][target])
    padded = rounded_up(len(labels))
    weights = np.zeros(padded, np.float32)
    weights[: len(labels)] = 1.0
    filler = [0] * (padded - len(labels))
    return Batch(
        np.asarray([rows[0]["ids"][:prefix_tokens]], np.int32),
        ids,
        np.asarray(positions + filler, np.int32),
        np.asarray(labels + filler, np.int32),
        weights,
        tuple(row["id"] for row in rows),
    )


def epoch_order(count: int, batch_rows: int, seed: int, epoch: int) -> Iterator[list[int]]:
    """Yield the row indices of each batch of an epoch: a permutation of all rows, the last batch may be smaller."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    for start in range(0, count, batch_rows):
        yield [int(i) for i in order[start : start + batch_rows]]
