"""Which leading tokens the rows of a batch share: a trie of segments, from token counts alone.

A segment is run once, on top of its parent's keys and values; the rows are the leaves. The plan depends on nothing
but the rows and a rule that is kept in the state, so that a resumed run shares what the first one shared.
Prior art: Prefix Grouper (arXiv 2506.05433) and DPO prefix sharing (arXiv 2410.20305), both for one level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlx_sentis.training.dealing import deal_out
from mlx_sentis.training.segments import LEAST_SAVED, MULTIPLE, Row, Segment, computed_tokens, read_tokens

LEAST_RATIO = 1.3  # plain / shared computed tokens; there a SmolLM2 step is 1.2 to 1.3 times as fast, at 1.1 1.07 times


@dataclass(frozen=True)
class Sharing:
    """What the rows of a data set may share.

    Attributes:
        prefix_tokens: P, the leading tokens that all rows of the data set have in common.
        nested: share more where the rows of one batch have more in common.
        least_ratio: a batch is run plainly where plain / shared computed tokens stay below it.
        streams: how many passes may run side by side, see `dealing.deal_out`.
    """

    prefix_tokens: int
    nested: bool = True
    least_ratio: float = LEAST_RATIO
    streams: int = 1


NOTHING_SHARED = Sharing(0, nested=False)


def shareable_tokens(row: Row) -> int:
    """Return how many leading tokens lie before the hidden state that predicts the row's first label."""
    return row["trained"][0][0] - 1


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


def rule_of(sharing: Sharing) -> dict[str, float]:
    """Return what decides, beside the rows, how a batch is cut into passes: a state holds it for its resume."""
    return {"least_ratio": sharing.least_ratio, "streams": sharing.streams}


def sharing_of(
    rows: Sequence[Row], *, enabled: bool = True, streams: int | None = None, rule: Mapping[str, float] | None = None
) -> Sharing:
    """Return what the batches of a data set may share.

    Args:
        rows: the whole data set; one row alone shares nothing.
        enabled: `train.share_prefix`.
        streams: how many passes may run side by side; None takes what pays on this device.
        rule: of the run that is resumed, see `rule_of`; it goes before this version's ratio and this machine's cores.
    """
    if streams is None:
        from mlx_sentis.training.streams import side_by_side

        streams = side_by_side(int(rule["streams"]) if rule else None)
    least_ratio = rule["least_ratio"] if rule else LEAST_RATIO
    if not enabled:
        return Sharing(0, nested=False, least_ratio=least_ratio, streams=streams)
    return Sharing(shared_prefix_tokens(rows) if len(rows) > 1 else 0, least_ratio=least_ratio, streams=streams)


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
    return deal_out(shared if saved >= sharing.least_ratio else plain, rows, sharing.streams)


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
