"""Batches of few shapes: rows of similar length together, each padded on the right to a multiple of 16.

Legend: `R` rows of one pass, `S` padded tokens of one pass, `N` padded count of labelled positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlx_sentis.training.segments import MULTIPLE, Segment, read_tokens, rounded_up
from mlx_sentis.training.sharing import Sharing, plan_segments, shareable_tokens
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, counted
from weights_bridge.settings import TrainSettings

SORTED_TOGETHER = 32  # batches; rows are sorted by length inside them, so that an epoch still mixes the data


@dataclass(frozen=True)
class Pass:
    """Tokens that go through the layers together.

    Attributes:
        ids: [R, S]; a shared segment has R = 1, rows are padded with `pad_id` on the right (causal: nobody reads it).
        parent: index of the pass whose keys and values come before, −1 at the beginning of the rows.
        first: the first of the S hidden states that is read; for a shared segment none is.
        positions: [n] flat indices into [R · (S − first)] of the hidden states that predict a label.
        leaf: whether hidden states are read.
        stream: where it runs; passes of different streams run side by side.
    """

    ids: Array
    parent: int
    first: int
    positions: Array
    leaf: bool
    stream: int


@dataclass(frozen=True)
class Batch:
    """One batch as integer arrays.

    Attributes:
        passes: parents before children.
        labels: [N] the ids to predict, in the order of the leaves' positions.
        weights: [N] 1.0 for a label, 0.0 for padding of N.
        names: the rows' ids, for messages.
        real_tokens: of the rows, up to the last one that is read; shared tokens count in every row.
        plain_tokens: what a padded batch without sharing would compute.
        shared_tokens: leading tokens that all rows share.
    """

    passes: tuple[Pass, ...]
    labels: Array
    weights: Array
    names: tuple[str, ...]
    real_tokens: int
    plain_tokens: int
    shared_tokens: int

    @property
    def trained_tokens(self) -> int:
        return int(self.weights.sum())

    @property
    def computed_tokens(self) -> int:
        """Tokens that go through the layers, padding included."""
        return sum(one.ids.size for one in self.passes)


def require_batch(rows: int, settings: TrainSettings) -> None:
    """Refuse a batch that the training rows cannot fill; a token budget asks for no number of rows.

    Raises:
        StageError: fewer rows than one batch.
    """
    if not settings.batch_tokens and rows < settings.batch_rows:
        what = f"split train: {counted(rows, 'row')} cannot fill one batch of {settings.batch_rows}"
        raise StageError(what, hint=f"--set train.batch_rows={max(1, rows)}, or add rows")


def make_batch(rows: Sequence[dict[str, Any]], sharing: Sharing | int, pad_id: int) -> Batch:
    """Return the batch of some prepared rows.

    Args:
        rows: prepared rows (`ids`, `trained`, `id`).
        sharing: what the data set's rows may share; a number shares exactly that many leading tokens, 0 none.
        pad_id: the padding token; it is never a label here, even where it equals the end token.
    """
    passes, labels = [], []
    segments = plan_segments(rows, sharing)
    for segment in segments:
        passes.append(_rows_pass(rows, segment, pad_id) if segment.leaf else _shared_pass(rows, segment))
        labels += [row["ids"][at] for i in segment.rows if segment.leaf for row in [rows[i]] for at in _targets(row)]
    padding = rounded_up(len(labels)) - len(labels)
    if padding:
        last = passes[-1]  # parents come before children: a leaf
        filled = np.concatenate([last.positions, np.zeros(padding, np.int32)])
        passes[-1] = replace(last, positions=filled)
    return Batch(
        tuple(passes),
        np.asarray(labels + [0] * padding, np.int32),
        np.asarray([1.0] * len(labels) + [0.0] * padding, np.float32),
        tuple(row["id"] for row in rows),
        sum(read_tokens(row) for row in rows),
        len(rows) * rounded_up(max(read_tokens(row) for row in rows)),
        max((one.stop for one in segments if not one.leaf and len(one.rows) == len(rows)), default=0),
    )


def _targets(row: dict[str, Any]) -> list[int]:
    return [at for start, end in row["trained"] for at in range(start, end)]


def _shared_pass(rows: Sequence[dict[str, Any]], segment: Segment) -> Pass:
    ids = rows[segment.rows[0]]["ids"][segment.start : segment.stop]
    return Pass(np.asarray([ids], np.int32), segment.parent, 0, np.zeros(0, np.int32), False, segment.stream)


def _rows_pass(rows: Sequence[dict[str, Any]], segment: Segment, pad_id: int) -> Pass:
    width = rounded_up(segment.stop - segment.start)
    unread = min(shareable_tokens(rows[i]) for i in segment.rows) - segment.start
    first = unread // MULTIPLE * MULTIPLE
    ids = np.full((len(segment.rows), width), pad_id, np.int32)
    positions = []
    for index, row in enumerate(rows[i] for i in segment.rows):
        tail = row["ids"][segment.start : read_tokens(row)]
        ids[index, : len(tail)] = tail
        positions += [index * (width - first) + at - 1 - segment.start - first for at in _targets(row)]
    return Pass(ids, segment.parent, first, np.asarray(positions, np.int32), True, segment.stream)


def plan_epoch(rows: Sequence[dict[str, Any]], settings: TrainSettings, epoch: int) -> list[list[int]]:
    """Return the row indices of every batch of an epoch: each row once, in an order of seed and epoch alone.

    Rows of similar length stand together (`train.buckets`), the batches come in random order. A batch holds
    `train.batch_rows` rows or, where `train.batch_tokens` is set, as many as that many padded tokens allow.

    Args:
        rows: the training rows.
        settings: batch_rows, batch_tokens, buckets and seed.
        epoch: counted from 0.
    """
    random = np.random.default_rng([settings.seed, epoch])
    order = [int(index) for index in random.permutation(len(rows))]
    widths = [rounded_up(read_tokens(row)) for row in rows]
    if settings.buckets:
        order = _sorted_in_pieces(order, widths, _rows_sorted_together(widths, settings))
    batches = list(_cut(order, widths, settings))
    if not settings.buckets:
        return batches
    return [batches[int(index)] for index in random.permutation(len(batches))]


def _rows_sorted_together(widths: list[int], settings: TrainSettings) -> int:
    per_batch = settings.batch_rows
    if settings.batch_tokens:
        per_batch = max(1, settings.batch_tokens * len(widths) // max(1, sum(widths)))
    return SORTED_TOGETHER * per_batch


def _sorted_in_pieces(order: list[int], widths: list[int], size: int) -> list[int]:
    """Return the order, each piece of `size` rows sorted by width; equal widths keep their random order."""
    pieces = [order[start : start + size] for start in range(0, len(order), size)]
    return [index for piece in pieces for index in sorted(piece, key=widths.__getitem__)]


def _cut(order: list[int], widths: list[int], settings: TrainSettings) -> Iterator[list[int]]:
    """Yield consecutive batches; with a token budget a row longer than it is a batch of its own."""
    batch: list[int] = []
    widest = 0
    for index in order:
        wider = max(widest, widths[index])
        budget = settings.batch_tokens
        full = wider * (len(batch) + 1) > budget if budget else len(batch) == settings.batch_rows
        if batch and full:
            yield batch
            batch, wider = [], widths[index]
        batch.append(index)
        widest = wider
    if batch:
        yield batch
