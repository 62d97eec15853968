"""Texts as sets of shingles, and the MinHash signatures of those sets: what near-duplicates are found by.

Shingles are single words and pairs of neighbours, of the text without case, punctuation and width forms. Words make
slots count fully: "walk to the mill" and "walk to the barn" share 5 of 9 shingles, "open the gate" and "open the old
gate" 4 of 8, so the short rows of a template stay apart, which runs of three to five characters would chain into one
group. Pairs make order count. Scripts without spaces give one word per character.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from zlib import crc32

import numpy as np

from weights_bridge.compare import Array

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")
SIGNATURE, SEED = 128, 42  # hash functions; the standard error of an estimate is at most 0.044


def words(text: str) -> list[str]:
    """Return a text's words: case-folded, compatibility forms unified, without punctuation."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> set[str]:
    """Return a text's shingles; a text without any word is its own."""
    found = words(text)
    return {*found, *map(" ".join, pairwise(found))} or {text.strip()}


def hashed(found: set[str]) -> Array:
    """Return the CRC-32 of each shingle: [S] uint32."""
    return np.array([*{crc32(shingle.encode()) for shingle in found}], np.uint32)


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
