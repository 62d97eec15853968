"""How far held-out texts are from trained ones: the nearest pairs across the cut, for people to judge.

Near-duplicates (`clusters`) never stand on both sides, so what is listed here lies below their threshold. Similarities
are estimated from the MinHash signatures first: of all pairs where they are few, else of pairs that stand beside each
other when the signatures are sorted by a band (4 functions, then 2), which misses few of the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlx_sentis.prepare.clusters import NearPair, band_keys
from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.shingles import SIGNATURE, similarity
from mlx_sentis.prepare.sources import SPLITS
from weights_bridge.compare import Array

LISTED = 10
LOOKED_AT = 8 * LISTED  # pairs whose real similarity decides
EVERY_PAIR = 1 << 22  # so many pairs of signatures are compared in half a second
WIDTHS = (4, 2)
AT_ONCE = 4096
TRAIN, HELD = SPLITS.index("train"), SPLITS.index("holdout")


def nearest_pairs(index: RowIndex, splits: Array, used: Array, most: int = LISTED) -> list[NearPair]:
    """Return held-out rows with the trained row that says the most alike, the nearest first; a text stands once.

    Args:
        index: all rows, with signatures.
        splits: [rows] the split of each, a place in `SPLITS`.
        used: [rows] bool, rows that were written.
        most: the most pairs.

    Returns:
        Pairs of (trained row, held-out row) and the Jaccard similarity of their shingles.
    """
    sides = [_texts_of(index, np.flatnonzero(used & (splits == side))) for side in (TRAIN, HELD)]
    trained, held = sides
    if not len(trained) or not len(held):
        return []
    # the lowest bytes estimate as well (1/256 too high at the most) and are four times as fast to compare
    low = index.signatures.astype(np.uint8)
    is_few = len(trained) * len(held) <= EVERY_PAIR
    found = _every_pair(low, trained, held) if is_few else _pairs_of_bands(index, low, trained, held)
    counts, partners = np.full(len(held), -1), np.zeros(len(held), np.int64)
    for first, second, equal in found:
        order = np.argsort(equal)  # of several pairs with one held-out row the last, best one stays
        order = order[equal[order] > counts[second[order]]]
        counts[second[order]], partners[second[order]] = equal[order], first[order]
    pairs = []
    for at in np.lexsort((held, -counts))[:LOOKED_AT].tolist():
        if counts[at] >= 0:
            one, other = int(trained[partners[at]]), int(held[at])
            pairs.append(NearPair(one, other, similarity(index.shingles(one), index.shingles(other))))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.second))[:most]


def _texts_of(index: RowIndex, rows: Array) -> Array:
    """Return one row of each text."""
    return rows[np.unique(index.texts[rows], return_index=True)[1]]


# Both yield places among the trained and among the held-out rows, and how many lanes of the signatures are equal.
def _every_pair(low: Array, trained: Array, held: Array) -> Iterator[tuple[Array, Array, Array]]:
    theirs = low[trained]
    for place, row in enumerate(held.tolist()):
        equal = _equal_lanes(theirs, low[row])
        best = np.array([equal.argmax()])
        yield best, np.array([place]), equal[best]


def _pairs_of_bands(index: RowIndex, low: Array, trained: Array, held: Array) -> Iterator[tuple[Array, Array, Array]]:
    rows = np.concatenate([trained, held])
    is_held = np.arange(len(rows)) >= len(trained)
    for width in WIDTHS:
        for start in range(0, SIGNATURE, width):
            keys = band_keys(index.signatures[:, start : start + width][rows])
            order = np.argsort(keys, kind="stable")
            same = (keys[order[1:]] == keys[order[:-1]]) & (is_held[order[1:]] != is_held[order[:-1]])
            one, other = order[:-1][same], order[1:][same]
            first, second = np.where(is_held[one], other, one), np.where(is_held[one], one, other)
            for at in range(0, len(first), AT_ONCE):
                pair = first[at : at + AT_ONCE], second[at : at + AT_ONCE]
                yield pair[0], pair[1] - len(trained), _equal_lanes(low[rows[pair[0]]], low[rows[pair[1]]])


def _equal_lanes(first: Array, second: Array) -> Array:
    """Return how many lanes of signatures are equal: [N] int, of [N, SIGNATURE] and the same or [SIGNATURE]."""
    return np.bitwise_count(np.packbits(first == second, axis=1).view(np.uint64)).sum(1, dtype=np.int64)
