"""Texts as sets of shingles, and the MinHash signatures of those sets: what near-duplicates are found by.

Shingles are single words and pairs of neighbours, of the text without case, punctuation and width forms. Words make
slots count fully: "walk to the mill" and "walk to the barn" share 5 of 9 shingles, "open the gate" and "open the old
gate" 4 of 8, so the short rows of a template stay apart, which runs of three to five characters would chain into one
group. Pairs make order count. Scripts without spaces give one word per character.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np

from weights_bridge.compare import Array

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")
MIX = np.uint32(0x9E3779B1)  # odd, so that no two first words give one pair
SIGNATURE, SEED = 128, 42  # hash functions; the standard error of an estimate is at most 0.044


def words(text: str) -> list[str]:
    """Return a text's words: case-folded, compatibility forms unified, without punctuation; itself without any."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [text.strip()]


def shingles(said: list[str]) -> set[str]:
    """Return the shingles of some words."""
    return {*said, *map(" ".join, pairwise(said))}


def shingle_numbers(said: list[str]) -> Array:
    """Return a number for each word and each pair: [2 W − 1] uint32; the CRC-32 of a word, mixed for a pair."""
    numbers = np.array([_word_number(word) for word in said], np.uint32)
    return np.concatenate([numbers, numbers[:-1] * MIX + numbers[1:]])


@lru_cache(1 << 16)
def _word_number(word: str) -> int:
    return crc32(word.encode())


def signature(found: set[str]) -> list[int]:
    """Return the MinHash signature of a set of shingles: `SIGNATURE` numbers of 32 bits."""
    from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue], compiled, without stubs

    sketch = RMinHash(SIGNATURE, SEED)
    sketch.update(list(found))
    return sketch.digest()


def similarity(first: frozenset[int], second: frozenset[int]) -> float:
    """Return the Jaccard similarity of two sets of shingles, in [0, 1]."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)
