"""Which stream runs which tokens of a batch, and which rows share a pass.

Streams run side by side (`mlx_sentis.training.streams`). The shared segments are a line, parents before children, and
each stream takes the next equal part of the whole work of it; rows go to what is left, never to a stream before their
prefix's last. So a stream waits for lower numbers only on the way forward and for higher ones only on the way back, and
soon all are busy, a layer apart. Dealt out in turns they wait for each other at every layer: a third of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mlx_sentis.training.segments import LEAST_SAVED, MULTIPLE, Row, Segment, read_tokens, rounded_up

LEAST_PART = 64  # tokens worth a stream of their own
PASS = 40  # tokens that a pass costs beside its own: it reads all weights

Groups = dict[int, list[int]]  # stream -> its rows, or its blocks of a shared segment
Widths = Mapping[int, int]  # tokens of each


def deal_out(segments: Sequence[Segment], rows: Sequence[Row], streams: int) -> list[Segment]:
    """Return the passes of a batch, parents before children: over the streams, and rows by length in each.

    Rows of similar length together need the least padding, the longest first gives the most equal loads: what ends
    sooner is taken.

    Args:
        segments: parents before children.
        rows: of the batch.
        streams: 1 leaves shared segments whole.
    """
    if streams == 1:
        return _by_length(segments, rows)
    ways = ((segments, _in_order), (_by_length(segments, rows), _in_order), (segments, longest_first))
    dealt = [_by_length(_over_streams(some, rows, streams, deal), rows) for some, deal in ways]
    return min(dealt, key=lambda passes: max(_loads(passes, streams)))


def _loads(passes: Sequence[Segment], streams: int) -> list[int]:
    loads = [0] * streams
    for one in passes:
        loads[one.stream] += one.computed_tokens + PASS
    return loads


def _over_streams(
    segments: Sequence[Segment], rows: Sequence[Row], streams: int, deal: Callable[..., Groups]
) -> list[Segment]:
    shared = [(index, one) for index, one in enumerate(segments) if not one.leaf]
    widths = {i: rounded_up(read_tokens(rows[i]) - one.start) for one in segments if one.leaf for i in one.rows}
    share = (sum(one.stop - one.start for _, one in shared) + sum(widths.values())) / streams
    loads, cut = [0] * streams, list[Segment]()
    last_piece: dict[int, int] = {-1: -1}
    for index, segment in shared:
        parent = last_piece[segment.parent]
        for piece in _pieces(segment, loads, share):
            loads[piece.stream] += piece.stop - piece.start
            cut.append(replace(piece, parent=parent))
            parent = len(cut) - 1
        last_piece[index] = parent
    for leaf in (one for one in segments if one.leaf):
        parent = last_piece[leaf.parent]
        order = sorted(leaf.rows, key=lambda i: (widths[i], i))
        groups = deal(order, widths, loads, share, cut[parent].stream if parent >= 0 else 0)
        for stream, group in _of_some_size(groups, widths):
            loads[stream] += sum(widths[i] for i in group)
            stop = max(read_tokens(rows[i]) for i in group)
            cut.append(replace(leaf, parent=parent, stop=stop, rows=group, stream=stream))
    return cut


def _pieces(segment: Segment, loads: Sequence[int], share: float) -> list[Segment]:
    """Return a shared segment cut where streams have their share."""
    starts = range(segment.start, segment.stop, MULTIPLE)
    widths = {number: min(MULTIPLE, segment.stop - start) for number, start in enumerate(starts)}
    parts = _of_some_size(_in_order(list(widths), widths, loads, share), widths)
    stops = [starts[part[0]] for _, part in parts[1:]] + [segment.stop]
    return [
        replace(segment, start=starts[part[0]], stop=stop, stream=stream)
        for (stream, part), stop in zip(parts, stops, strict=True)
    ]


def _in_order(order: Sequence[int], widths: Widths, loads: Sequence[int], share: float, first: int = 0) -> Groups:
    """Deal out along the line: where the middle of an item lies decides."""
    groups: Groups = {}
    taken = sum(loads)
    for item in order:
        stream = int((taken + widths[item] / 2) / share)
        groups.setdefault(min(max(first, stream), len(loads) - 1), []).append(item)
        taken += widths[item]
    return groups


def longest_first(order: Sequence[int], widths: Widths, loads: Sequence[int], share: float, first: int) -> Groups:
    """Deal each item, the longest first, to the stream from `first` on that has the least to do (tokens in `loads`)."""
    groups: Groups = {}
    loads = list(loads)
    for item in reversed(order):
        stream = min(range(first, len(loads)), key=loads.__getitem__)
        groups.setdefault(stream, []).append(item)
        loads[stream] += widths[item]
    return groups


def _of_some_size(groups: Groups, widths: Widths) -> list[tuple[int, list[int]]]:
    """Return the groups by stream; one that is too small for a pass of its own goes to its neighbour."""
    parts: list[tuple[int, list[int]]] = []
    for stream, group in sorted(groups.items()):
        own, before = (sum(widths[i] for i in some) for some in (group, parts[-1][1] if parts else []))
        if parts and min(own, before) < LEAST_PART:
            other, items = parts.pop()
            stream, group = stream if own > before else other, items + group
        parts.append((stream, group))
    return parts


def _by_length(segments: Sequence[Segment], rows: Sequence[Row]) -> list[Segment]:
    """Return the passes with each leaf cut into rows of similar length, where that saves enough padding."""
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
