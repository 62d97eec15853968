"""Which leading tokens the rows of a batch share: a trie of segments, from token counts alone.

A segment is run once, on top of its parent's keys and values; the rows are the leaves. The plan depends on nothing
but the rows and the constants below, so that a resumed run shares what the first one shared.
Prior art: Prefix Grouper (arXiv 2506.05433) and DPO prefix sharing (arXiv 2410.20305), both for one level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Row = dict[str, Any]

MULTIPLE = 16  # tokens; on Metal every new shape is compiled once, multiples keep them few
LEAST_RATIO = 1.3  # plain / shared computed tokens; there a SmolLM2 step is 1.2 to 1.3 times as fast, at 1.1 1.07 times
LEAST_PART = 64  # tokens worth a stream of their own
LEAST_SAVED = 128  # tokens a nested segment must save; a further pass reads all weights again, as dear as some 40


@dataclass(frozen=True)
class Sharing:
    """What the rows of a data set may share.

    Attributes:
        prefix_tokens: P, the leading tokens that all rows of the data set have in common.
        nested: share more where the rows of one batch have more in common.
        least_ratio: a batch is run plainly where plain / shared computed tokens stay below it.
        streams: how many passes may run side by side, see `split_over_streams`.
    """

    prefix_tokens: int
    nested: bool = True
    least_ratio: float = LEAST_RATIO
    streams: int = 1


NOTHING_SHARED = Sharing(0, nested=False)


@dataclass
class Segment:
    """Tokens `start:stop` of some rows that are run in one pass.

    Attributes:
        parent: index of the segment that ends where this one starts, −1 at the beginning of the rows.
        start: first token.
        stop: behind the last one; for leaves, behind the last token whose hidden state is read.
        rows: indices of the rows; those of a shared segment all have the same tokens here.
        leaf: the rows differ, and their labels are read from this pass.
        stream: where it runs.
    """

    parent: int
    start: int
    stop: int
    rows: list[int] = field(default_factory=list)
    leaf: bool = False
    stream: int = 0

    @property
    def computed_tokens(self) -> int:
        width = self.stop - self.start
        return rounded_up(width) * len(self.rows) if self.leaf else width


def rounded_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE


def shareable_tokens(row: Row) -> int:
    """Return how many leading tokens lie before the hidden state that predicts the row's first label."""
    return row["trained"][0][0] - 1


def read_tokens(row: Row) -> int:
    """Return how many leading tokens anybody reads: up to the hidden state that predicts the last label."""
    return row["trained"][-1][1] - 1


def common_tokens(rows: Sequence[Row], start: int = 0) -> int:
    """Return how many leading tokens all rows have in common and may share, at least `start`.

    Args:
        rows: one or more.
        start: tokens already known to be equal.
    """
    first, limit = rows[0]["ids"], min(shareable_tokens(row) for row in rows)
    for row in rows[1:]:
        ids = row["ids"]
        limit = min(limit, len(ids))
        if ids[start:limit] != first[start:limit]:
            limit = next(i for i in range(start, limit) if ids[i] != first[i])
    return max(start, limit)


def shared_prefix_tokens(rows: Sequence[Row]) -> int:
    """Return how many leading tokens all rows share and may share.

    The last shared token must lie before the hidden state that predicts the first trained token of any row.
    """
    return common_tokens(rows)


def sharing_of(rows: Sequence[Row], *, enabled: bool = True, streams: int | None = None) -> Sharing:
    """Return what the batches of a data set may share.

    Args:
        rows: the whole data set; one row alone shares nothing.
        enabled: `train.share_prefix`.
        streams: how many passes may run side by side; None takes what pays on this device.
    """
    if streams is None:
        from mlx_sentis.training.streams import side_by_side

        streams = side_by_side()
    if not enabled:
        return replace(NOTHING_SHARED, streams=streams)
    return Sharing(shared_prefix_tokens(rows) if len(rows) > 1 else 0, streams=streams)


def plan_segments(rows: Sequence[Row], sharing: Sharing | int) -> list[Segment]:
    """Return the passes of a batch, parents before children.

    Args:
        rows: of the batch.
        sharing: a number shares exactly that many leading tokens, whatever it saves.
    """
    everyone = list(range(len(rows)))
    if isinstance(sharing, int):
        root = [Segment(-1, 0, sharing, everyone)] if sharing else []
        return [*root, _leaf(rows, len(root) - 1, sharing, everyone)]
    plain = [_leaf(rows, -1, 0, everyone)]
    shared = _shared(rows, sharing, everyone)
    saved = computed_tokens(plain) / computed_tokens(shared)
    chosen = split_by_length(shared if saved >= sharing.least_ratio else plain, rows)
    return split_over_streams(chosen, rows, sharing.streams)


def split_by_length(segments: Sequence[Segment], rows: Sequence[Row]) -> list[Segment]:
    """Return the passes with each leaf cut into rows of similar length, where that saves enough padding.

    Args:
        segments: parents before children.
        rows: of the batch.
    """
    cut: list[Segment] = []
    place = {-1: -1}
    for index, segment in enumerate(segments):
        place[index] = len(cut)  # only leaves are cut, and nothing hangs on a leaf
        for part in _lengths(segment, rows) if segment.leaf else [segment]:
            cut.append(replace(part, parent=place[segment.parent]))
    return cut


def _lengths(leaf: Segment, rows: Sequence[Row]) -> list[Segment]:
    """Return a leaf as it is, or cut where the shorter rows save the most padding, and so on in both parts."""
    order = sorted(leaf.rows, key=lambda i: read_tokens(rows[i]))
    widths = [rounded_up(read_tokens(rows[i]) - leaf.start) for i in order]
    saved, at = max(((k * (widths[-1] - widths[k - 1]), k) for k in range(1, len(order))), default=(0, 0))
    if saved < LEAST_SAVED:
        return [leaf]
    parts = (order[:at], order[at:])
    return [
        one
        for part in parts
        for one in _lengths(replace(leaf, stop=max(read_tokens(rows[i]) for i in part), rows=part), rows)
    ]


def split_over_streams(segments: Sequence[Segment], rows: Sequence[Row], streams: int) -> list[Segment]:
    """Return the passes cut so that several streams have equal work.

    The work is a line, parents before children, and each stream takes the next equal part of it. So a stream waits for
    lower numbers only on the way forward and for higher ones only on the way back, and soon all are busy, a layer
    apart. Dealt out in turns they wait for each other at every layer: a third of a step.

    Args:
        segments: parents before children.
        rows: of the batch.
        streams: 1 changes nothing.
    """
    if streams == 1:
        return list(segments)
    cut: list[Segment] = []
    last_piece: dict[int, int] = {-1: -1}
    widths = [_widths(segment, rows) for segment in segments]
    share = sum(map(sum, widths)) / streams
    taken = 0
    for index, segment in enumerate(segments):
        parts = _dealt_out(widths[index], taken, share)
        pieces = _of_rows(segment, rows, parts) if segment.leaf else _of_blocks(segment, parts)
        for number, piece in enumerate(pieces):
            parent = last_piece[segment.parent] if piece.leaf or number == 0 else len(cut) - 1
            cut.append(replace(piece, parent=parent))
        last_piece[index] = len(cut) - 1
        taken += sum(widths[index])
    return cut


Parts = list[tuple[int, list[int]]]  # stream, which items it takes


def _widths(segment: Segment, rows: Sequence[Row]) -> list[int]:
    """Return the tokens of what a segment may be cut into: rows of a leaf, shortest first, blocks of another."""
    if segment.leaf:
        return [rounded_up(read_tokens(rows[i]) - segment.start) for i in _by_length(segment, rows)]
    return [min(MULTIPLE, segment.stop - start) for start in range(segment.start, segment.stop, MULTIPLE)]


def _by_length(segment: Segment, rows: Sequence[Row]) -> list[int]:
    return sorted(segment.rows, key=lambda i: read_tokens(rows[i]))


def _of_blocks(segment: Segment, parts: Parts) -> list[Segment]:
    starts = [segment.start + MULTIPLE * part[0] for _, part in parts]
    stops = [*starts[1:], segment.stop]
    return [
        replace(segment, start=start, stop=stop, stream=stream)
        for (stream, _), start, stop in zip(parts, starts, stops, strict=True)
    ]


def _of_rows(segment: Segment, rows: Sequence[Row], parts: Parts) -> list[Segment]:
    order = _by_length(segment, rows)
    groups = [(stream, [order[k] for k in part]) for stream, part in parts]
    return [
        replace(segment, stop=max(read_tokens(rows[i]) for i in group), rows=group, stream=stream)
        for stream, group in groups
    ]


def _dealt_out(widths: Sequence[int], taken: float, share: float) -> Parts:
    """Return which items each stream takes: where an item's middle lies on the line decides.

    Args:
        widths: tokens of each item, in the order of the line.
        taken: tokens before the first one.
        share: tokens of a stream.
    """
    groups: dict[int, list[int]] = {}
    for index, width in enumerate(widths):
        groups.setdefault(int((taken + width / 2) / share), []).append(index)
        taken += width
    parts: Parts = []
    for stream, group in groups.items():
        own, before = (sum(widths[i] for i in some) for some in (group, parts[-1][1] if parts else []))
        if parts and min(own, before) < LEAST_PART:  # too little for a pass of its own
            other, items = parts.pop()
            stream, group = stream if own > before else other, items + group
        parts.append((stream, group))
    return parts


def computed_tokens(segments: Sequence[Segment]) -> int:
    """Return how many tokens go through the layers, padding included."""
    return sum(segment.computed_tokens for segment in segments)


def _shared(rows: Sequence[Row], sharing: Sharing, everyone: list[int]) -> list[Segment]:
    segments: list[Segment] = []
    known = min(sharing.prefix_tokens, *(shareable_tokens(row) for row in rows))
    stop = known
    if sharing.nested and len(rows) > 1:  # what this batch has beyond the data set's prefix
        stop += _in_multiples(common_tokens(rows, known) - known)
    if stop:
        segments.append(Segment(-1, 0, stop, everyone))
    _grow(segments, rows, len(segments) - 1, stop, everyone, nested=sharing.nested)
    return segments


def _grow(
    segments: list[Segment], rows: Sequence[Row], parent: int, start: int, members: list[int], *, nested: bool
) -> None:
    """Append the subtree of some rows that are equal up to `start`: children that save enough, then the leaf."""
    left = list(members)
    for group in _groups(rows, start, members) if nested else []:
        length = _in_multiples(common_tokens([rows[i] for i in group], start) - start)
        if (len(group) - 1) * length < LEAST_SAVED:
            continue
        segments.append(Segment(parent, start, start + length, group))
        _grow(segments, rows, len(segments) - 1, start + length, group, nested=True)
        left = [index for index in left if index not in group]
    if left:
        segments.append(_leaf(rows, parent, start, left))


def _groups(rows: Sequence[Row], start: int, members: list[int]) -> list[list[int]]:
    """Return the members that have the next `MULTIPLE` tokens in common, in order of first appearance."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in members:
        if shareable_tokens(rows[index]) >= start + MULTIPLE:
            groups.setdefault(tuple(rows[index]["ids"][start : start + MULTIPLE]), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def _leaf(rows: Sequence[Row], parent: int, start: int, members: list[int]) -> Segment:
    return Segment(parent, start, max(read_tokens(rows[i]) for i in members), members, leaf=True)


def _in_multiples(count: int) -> int:
    return count // MULTIPLE * MULTIPLE
