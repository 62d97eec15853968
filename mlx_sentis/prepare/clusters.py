"""Near-duplicates: which texts say almost the same, as groups that no split may cut through.

Candidates come from banded MinHash signatures (Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, ch. 3.4):
texts that agree in a whole band are compared, first by signature, then by the real Jaccard similarity of their
shingles, which alone decides. Bands are found by sorting, one at a time, so the search needs 40 bytes a text.
Short texts that differ by one word are near-duplicates as well, whatever their similarity is (`fillers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mlx_sentis.prepare.fillers import one_word_apart
from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.shingles import SIGNATURE, similarity
from weights_bridge.compare import Array

MISSED_AT_MOST = 1e-3  # of pairs exactly at the threshold, by the choice of bands
DEVIATIONS = 3.0  # standard errors by which an estimate may lie below the threshold and still be looked at
PAIRS_AT_ONCE = 4096
SETS_IN_MEMORY = 1024
MOST_PAIRS = 1 << 26  # candidates compared by signature; half a minute
MOST_EXACT = 1 << 21  # of them by shingles


@dataclass(frozen=True)
class NearPair:
    """Two rows that say almost the same, by number, and the Jaccard similarity of their shingles."""

    first: int
    second: int
    similarity: float


@dataclass
class Clusters:
    """Groups of rows that stay together.

    Attributes:
        labels: [rows] the group of each row: the number of one of its rows.
        leaks: near-duplicates in two given splits; of each row in the later split, one.
        complete: whether every candidate pair was compared.
    """

    labels: Array
    leaks: list[NearPair] = field(default_factory=list)
    complete: bool = True


def find_clusters(index: RowIndex, threshold: float) -> Clusters:
    """Group equal texts, texts whose similarity is at least `threshold`, and short ones that differ by one word.

    Texts are in one group directly or through others.

    Args:
        index: the rows.
        threshold: Jaccard similarity in (0, 1]; 1 groups equal texts only.
    """
    _, firsts, inverse = np.unique(index.texts, return_index=True, return_inverse=True)
    if threshold >= 1 or not index.near:
        return Clusters(firsts[inverse])
    search = _Search(index, firsts, threshold)
    search.run()
    leaks = sorted(search.leaks.values(), key=lambda pair: (pair.second, pair.first))
    return Clusters(firsts[search.roots()[inverse]], leaks, search.complete)


def bands_for(threshold: float) -> tuple[int, int]:
    """Return (bands, rows per band): the longest bands that miss a pair at the threshold rarely enough.

    A pair of similarity s agrees in some band with probability 1 − (1 − s^rows)^bands.
    """
    fitting = [(SIGNATURE // rows, rows) for rows in range(1, SIGNATURE + 1)]
    return next(
        ((bands, rows) for bands, rows in reversed(fitting) if (1 - threshold**rows) ** bands <= MISSED_AT_MOST),
        fitting[0],
    )


class _Search:
    """The search for near-duplicates among the rows with different texts.

    Args:
        index: all rows.
        firsts: [T] one row of each text.
        threshold: Jaccard similarity.
    """

    def __init__(self, index: RowIndex, firsts: Array, threshold: float) -> None:
        self.index, self.firsts, self.threshold = index, firsts, threshold
        self.signatures = index.signatures
        # The lowest bytes alone estimate as well (1/256 too high at the most) and are four times as fast to compare.
        self.low = self.signatures.astype(np.uint8)[firsts]
        self.splits = index.splits[firsts]
        self.parents = np.arange(len(firsts))
        self.leaks: dict[int, NearPair] = {}
        self.leaked = np.zeros(len(firsts), bool)
        self.bands, self.width = bands_for(threshold)
        self.complete = True
        self.compared = self.compared_exactly = 0
        error = np.sqrt(threshold * (1 - threshold) / SIGNATURE)
        self.least_equal = SIGNATURE * (threshold - DEVIATIONS * error)
        self._shingles = lru_cache(SETS_IN_MEMORY)(lambda at: index.shingles(int(firsts[at])))

    def run(self) -> None:
        for first, second in one_word_apart(self.index, self.firsts):
            for one, other in zip(first.tolist(), second.tolist(), strict=True):
                self._join(one, other)
        for band in range(self.bands):
            for first, second in self._candidates(band):
                self._compare(band, first, second)

    def roots(self) -> Array:
        """Return [T] the root of each text, after pointing every text straight at it."""
        while True:
            higher = self.parents[self.parents]
            if np.array_equal(higher, self.parents):
                return self.parents
            self.parents = higher

    def _candidates(self, band: int) -> Iterator[tuple[Array, Array]]:
        """Yield pairs that agree in one band and are not known to belong together, a few thousand at a time."""
        keys = band_keys(self.signatures[:, band * self.width : (band + 1) * self.width][self.firsts])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        places = np.arange(len(keys) - 1)
        distance = 1
        while len(places := places[keys[places] == keys[places + distance]]):
            first, second = order[places], order[places + distance]
            wanted = self._wanted(first, second)
            for start in range(0, len(places), PAIRS_AT_ONCE):
                chosen = slice(start, start + PAIRS_AT_ONCE)
                yield first[chosen][wanted[chosen]], second[chosen][wanted[chosen]]
                if self.compared >= MOST_PAIRS // self.bands * (band + 1) or self.compared_exactly >= MOST_EXACT:
                    self.complete = False
                    return
            distance += 1
            if distance & (distance - 1) == 0:
                places = self._open_runs(keys, order, places)
            places = places[places < len(keys) - distance]

    def _wanted(self, first: Array, second: Array) -> Array:
        roots = self.roots()
        apart = roots[first] != roots[second]
        crossing = self.splits[first] != self.splits[second]
        later = np.where(self.splits[first] > self.splits[second], first, second)
        return apart | (crossing & ~self.leaked[later])

    def _open_runs(self, keys: Array, order: Array, places: Array) -> Array:
        """Return the places in runs of equal keys that are not yet one group."""
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        roots = self.roots()[order]
        splits = self.splits[order]
        one = np.minimum.reduceat(roots, starts) == np.maximum.reduceat(roots, starts)
        one &= np.minimum.reduceat(splits, starts) == np.maximum.reduceat(splits, starts)
        return places[~one[np.searchsorted(starts, places, side="right") - 1]]

    def _compare(self, band: int, first: Array, second: Array) -> None:
        self.compared += len(first)
        equal = self.low[first] == self.low[second]
        counts = np.bitwise_count(np.packbits(equal, axis=1).view(np.uint64)).sum(1)
        likely = np.flatnonzero(counts >= self.least_equal)
        whole = equal[likely, : self.bands * self.width].reshape(-1, self.bands, self.width).all(2)
        likely = likely[whole.argmax(1) == band]  # the others were compared at an earlier band
        for one, other in zip(first[likely].tolist(), second[likely].tolist(), strict=True):
            self._compare_exactly(one, other)

    def _compare_exactly(self, first: int, second: int) -> None:
        a, b = self._root(first), self._root(second)
        same_split = self.splits[first] == self.splits[second]
        if a == b and same_split:
            return
        self.compared_exactly += 1
        found = similarity(self._shingles(first), self._shingles(second))
        if found >= self.threshold:
            self._join(first, second, found)

    def _join(self, first: int, second: int, found: float | None = None) -> None:
        """Make one group of two texts, and note them where their splits differ; without `found` it is computed."""
        a, b = self._root(first), self._root(second)
        self.parents[max(a, b)] = min(a, b)
        if self.splits[first] == self.splits[second]:
            return
        found = similarity(self._shingles(first), self._shingles(second)) if found is None else found
        earlier, later = sorted((first, second), key=lambda at: (self.splits[at], self.firsts[at]))
        self.leaked[later] = True
        pair = NearPair(int(self.firsts[earlier]), int(self.firsts[later]), found)
        self.leaks.setdefault(later, pair)

    def _root(self, at: int) -> int:
        while (parent := int(self.parents[at])) != at:
            at = parent
        return at


def band_keys(columns: Array) -> Array:
    """Return one number per row for the values in some columns (multiply and add, modulo 2^64)."""
    keys = np.zeros(len(columns), np.uint64)
    for column in columns.T:
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + column + np.uint64(1)
    return keys
