"""Short texts that differ by one word put in, left out or moved: "open the gate", "please open the gate".

Shingles say too little about them: one "please" before four words leaves a similarity of 7/9. So texts of up to
`MOST_WORDS` words are one group too when the words of one are those of the other, in any order, with at most one more.
What they ask for decides as well: with calls (or the word `none`) as answers both must answer the same, so "open the
gate" and "open the old gate" stay apart where they call for different gates.

A bag of words is the sum of its words' numbers, so leaving out a word is a subtraction, and equal bags are found by
sorting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from weights_bridge.compare import Array

if TYPE_CHECKING:
    from mlx_sentis.prepare.index import RowIndex

MOST_WORDS = 16  # beyond that one word leaves a similarity above any useful threshold
LEAST_WORDS = 2  # that both share: a single word is a filler itself
TEXTS_AT_ONCE = 4096


def one_word_apart(index: RowIndex, firsts: Array) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of texts that differ by at most one word and answer alike, as places in `firsts`.

    A run of equal bags is a chain of pairs that begins with its earliest split; a longer text is paired with the first
    and the last of the run that it becomes.

    Args:
        index: all rows.
        firsts: [T] one row of each text.
    """
    answers, splits = _answers(index)[firsts], index.splits[firsts]
    bags, lengths = np.zeros(len(firsts), np.uint64), np.zeros(len(firsts), np.int64)
    shorter: list[Array] = []  # bags with one word left out
    owners: list[Array] = []
    for start in range(0, len(firsts), TEXTS_AT_ONCE):
        places = np.arange(start, min(start + TEXTS_AT_ONCE, len(firsts)))
        numbers = [index.words(int(firsts[at])) for at in places.tolist()]
        counts = np.array([len(one) if len(one) <= MOST_WORDS else 0 for one in numbers])
        owner = np.repeat(places, counts)
        words = np.concatenate([one for one, count in zip(numbers, counts, strict=True) if count] or [np.empty(0)])
        words = _mixed(words.astype(np.uint64))
        np.add.at(bags, owner, words)
        lengths[places] = counts
        longer = lengths[owner] > LEAST_WORDS
        owners.append(owner[longer])
        shorter.append(bags[owner[longer]] - words[longer] + answers[owner[longer]])
    fitting = np.flatnonzero(lengths >= LEAST_WORDS)
    keys = bags[fitting] + answers[fitting]
    order = np.lexsort((splits[fitting], keys))
    places, keys = fitting[order], keys[order]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    first = np.searchsorted(keys, keys[same])  # of the run
    yield places[first], places[same + 1]
    wanted, longer_ones = np.concatenate(shorter), np.concatenate(owners)
    left, right = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    found = np.flatnonzero(right > left)
    yield places[left[found]], longer_ones[found]
    yield places[right[found] - 1], longer_ones[found]


def _answers(index: RowIndex) -> Array:
    """Return a number for what each row's answer decides: [rows] uint64, one and the same for answers in prose."""
    prose = np.array([kind == "text" for kind in index.kinds])[index.kind_numbers]
    return np.where(prose, np.uint64(0), _mixed(index.answers))


def _mixed(numbers: Array) -> Array:
    """Return numbers whose sums do not meet by chance: [N] uint64 (the finaliser of SplitMix64, Steele et al. 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
