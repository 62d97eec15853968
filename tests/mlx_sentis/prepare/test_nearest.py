"""The nearest pairs across the cut: real similarities, the right texts, one pair for each held-out text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mlx_sentis.prepare import nearest
from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.nearest import HELD, LISTED, TRAIN, nearest_pairs
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.shingles import similarity

WORDS = "gate mill river road lamp tower bridge captain guard night morning bread silver coin horse open the a to and"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RowIndex]:
    """Texts of chance: 300 trained, 80 held out, one of them a near copy of a trained one, one said twice."""
    chance = random.Random(3)
    texts = [" ".join(chance.choices(WORDS.split(), k=chance.randint(5, 14))) for _ in range(380)]
    texts[311] = texts[17] + " quickly"
    texts[312] = texts[311]
    with RowIndex(42, tmp_path) as made:
        for line, text in enumerate(texts):
            said = [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]
            made.add("train" if line < 300 else "holdout", Row(said, [], f"rows.jsonl:{line}"))
        yield made


def exact(index: RowIndex) -> dict[int, float]:
    """Return held-out row to the similarity of the trained text that is nearest to it."""
    trained = [index.shingles(row) for row in np.flatnonzero(index.splits == TRAIN).tolist()]
    held = np.flatnonzero(index.splits == HELD).tolist()
    return {row: max(similarity(one, index.shingles(row)) for one in trained) for row in held if row != 312}


@pytest.mark.parametrize("every_pair", [nearest.EVERY_PAIR, 0], ids=["every pair", "bands"])
def test_the_nearest_pairs_are_found_with_their_real_similarity(
    index: RowIndex, monkeypatch: pytest.MonkeyPatch, every_pair: int
) -> None:
    monkeypatch.setattr(nearest, "EVERY_PAIR", every_pair)
    found = nearest_pairs(index, index.splits, np.ones(len(index), bool))
    assert len(found) == LISTED
    assert (found[0].first, found[0].second) == (17, 311)
    wanted = sorted(exact(index).values(), reverse=True)[:LISTED]
    assert sum(pair.similarity for pair in found) >= 0.9 * sum(wanted)
    assert [pair.similarity for pair in found] == sorted((pair.similarity for pair in found), reverse=True)
    assert len({pair.second for pair in found}) == LISTED
    for pair in found:
        assert (index.splits[pair.first], index.splits[pair.second]) == (TRAIN, HELD)
        assert pair.similarity == similarity(index.shingles(pair.first), index.shingles(pair.second))


def test_rows_that_were_left_out_are_not_listed(index: RowIndex) -> None:
    used = np.ones(len(index), bool)
    used[17] = False
    found = nearest_pairs(index, index.splits, used)
    assert all(pair.first != 17 for pair in found)
    used[index.splits == HELD] = False
    assert nearest_pairs(index, index.splits, used) == []
