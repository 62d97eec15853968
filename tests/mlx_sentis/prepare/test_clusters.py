"""Near-duplicates: found where they are, not where templates merely look alike, and in little memory."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mlx_sentis.prepare import clusters
from mlx_sentis.prepare.clusters import bands_for, find_clusters
from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.shingles import SIGNATURE, shingle_numbers, shingles, signature, similarity, words
from mlx_sentis.prepare.sources import open_source
from weights_bridge.files import CannotWriteError

FULL = r"the disk is full|File too large"

Indexed = Callable[..., RowIndex]


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[Indexed]:
    """Return an index of rows that say some texts, given as training rows or by split."""
    made: list[RowIndex] = []

    def make(texts: Sequence[str], **others: Sequence[str]) -> RowIndex:
        index = RowIndex(42, tmp_path)
        made.append(index)
        for split, given in {"train": texts, **others}.items():
            for line, text in enumerate(given, 1):
                said = [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]
                index.add(split, Row(said, [], f"{split}.jsonl:{line}"))
        return index

    yield make
    for index in made:
        index.__exit__(None, None, None)


def groups(index: RowIndex, threshold: float = 0.8) -> list[int]:
    """Return the sizes of groups with more than one row, the largest first."""
    sizes = Counter(find_clusters(index, threshold).labels.tolist())
    return sorted((size for size in sizes.values() if size > 1), reverse=True)


def jaccard(first: str, second: str) -> float:
    a, b = shingles(words(first)), shingles(words(second))
    return len(a & b) / len(a | b)


def sentences(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(f"word{rng.randrange(400)}" for _ in range(30)) for _ in range(count)]


def with_changes(text: str, count: int, rng: random.Random) -> str:
    pieces = text.split()
    for at in rng.sample(range(len(pieces)), count):
        pieces[at] = f"other{rng.randrange(400)}"
    return " ".join(pieces)


def test_case_punctuation_and_width_do_not_make_another_text() -> None:
    assert words("Open the GATE!") == words("open - the gate") == words("ｏｐｅｎ the gate")
    assert jaccard("Open the gate", "Open the old gate") == 0.5
    assert jaccard("walk to the mill", "walk to the barn") == pytest.approx(5 / 9)


def test_word_order_counts() -> None:
    assert jaccard("open door and gate", "gate and door open") == pytest.approx(4 / 10)


def test_scripts_without_spaces_are_taken_character_by_character() -> None:
    assert words("打开大门 now") == ["打", "开", "大", "门", "now"]
    assert 0.3 < jaccard("请打开村子北边的大门", "请关上村子北边的大门") < 1


def test_a_text_without_words_is_its_own_shingle() -> None:
    assert shingles(words(" ?! ")) == {"?!"}
    assert words("?") != words("!")


def test_numbers_of_shingles_are_as_many_and_shared_as_the_shingles() -> None:
    for text, other in pairwise(sentences(40)):
        sets = [frozenset(shingle_numbers(words(one)).tolist()) for one in (text, other)]
        assert similarity(*sets) == jaccard(text, other)
    assert len(set(shingle_numbers(words("a b a b")).tolist())) == len(shingles(words("a b a b"))) == 4


def test_the_share_of_equal_places_in_two_signatures_estimates_the_similarity() -> None:
    rng, errors = random.Random(5), []
    for text in sentences(60):
        other = with_changes(text, 5, rng)
        equal = np.mean(np.array(signature(shingles(words(text)))) == signature(shingles(words(other))))
        errors.append(equal - jaccard(text, other))
    assert abs(np.mean(errors)) < 0.02
    assert np.std(errors) < 0.07


def test_every_pair_that_brute_force_finds_is_found_and_no_other(indexed: Indexed) -> None:
    rng, texts = random.Random(2), sentences(150)
    texts += [with_changes(text, rng.randrange(1, 7), rng) for text in texts]
    sets = [frozenset(map(hash, shingles(words(text)))) for text in texts]
    parents = list(range(len(texts)))

    def root(at: int) -> int:
        return at if parents[at] == at else root(parents[at])

    for one in range(len(texts)):
        for other in range(one):
            if similarity(sets[one], sets[other]) >= 0.8:
                parents[root(one)] = root(other)
    wanted = {frozenset(i for i in range(len(texts)) if root(i) == r) for r in map(root, range(len(texts)))}
    found: dict[int, set[int]] = defaultdict(set)
    for row, label in enumerate(find_clusters(indexed(texts), 0.8).labels.tolist()):
        found[label].add(row)
    assert {frozenset(rows) for rows in found.values()} == wanted
    assert 20 < sum(len(rows) > 1 for rows in wanted) < 150  # some changes went too far, some did not


def test_short_rows_of_one_template_stay_apart(indexed: Indexed) -> None:
    places = [f"{word} {kind}" for word in ("old", "north", "red", "far") for kind in ("mill", "barn", "gate", "inn")]
    texts = [f"{ask} the {place}" for ask in ("walk to", "open", "please go over to", "lock") for place in places]
    assert groups(indexed(texts)) == []


def test_long_rows_of_one_template_are_one_group(indexed: Indexed) -> None:
    told = "before it gets dark outside I would like you to carry the basket of apples all the way over to the {}"
    texts = [told.format(place) for place in ("mill", "barn", "gate")]
    assert groups(indexed(texts)) == [3]
    assert groups(indexed(texts), 0.95) == []


def test_the_shipped_commands_have_no_near_duplicates(indexed: Indexed) -> None:
    source = open_source("npc-commands", "system-block")
    texts = {split: [row.user_text for row in source.rows(split) if isinstance(row, Row)] for split in source.files}
    train, others = texts.pop("train"), texts
    found = find_clusters(indexed(train, **others), 0.8)
    assert len(np.unique(found.labels)) == 500
    assert found.leaks == []


def test_equal_texts_are_one_group_at_any_threshold(indexed: Indexed) -> None:
    texts = ["Open the gate", "Open the gate", "Open the gate.", "Shut it"]
    assert groups(indexed(texts), 1) == [2]
    assert groups(indexed(texts), 0.8) == [3]


def test_a_near_duplicate_in_another_given_split_is_told_once_for_each_later_row(indexed: Indexed) -> None:
    text = "Could you please walk over to the old mill by the river and wait there until the sun has set?"
    near = [text.replace("old", word) for word in ("red", "big")]
    index = indexed([text, text.replace("sun", "moon"), "Shut it"], holdout=[*near, "Sing a song"])
    leaks = find_clusters(index, 0.8).leaks
    assert [pair.second for pair in leaks] == [3, 4]
    assert all(pair.first in (0, 1) for pair in leaks)
    for pair in leaks:
        both = [index.shown(row)[1] for row in (pair.first, pair.second)]
        assert pair.similarity == pytest.approx(jaccard(*both))
        assert pair.similarity >= 0.8


def test_bands_miss_few_pairs_at_the_threshold_and_are_no_shorter_than_they_must_be() -> None:
    for threshold in (0.3, 0.5, 0.8, 0.9, 0.99):
        bands, rows = bands_for(threshold)
        assert bands * rows <= SIGNATURE
        assert (1 - threshold**rows) ** bands <= 1e-3
        assert (1 - threshold ** (rows + 1)) ** (SIGNATURE // (rows + 1)) > 1e-3


def test_one_huge_group_is_found_without_comparing_every_pair(indexed: Indexed) -> None:
    rng, base = random.Random(3), sentences(1)[0] + " " + sentences(1, seed=9)[0]
    texts = [with_changes(base, 1, rng) for _ in range(800)]
    index = indexed(texts)
    search = clusters._Search(index, np.arange(len(texts)), 0.8)
    search.run()
    assert len(np.unique(search.roots())) == 1
    assert search.compared < 20 * len(texts)


def test_a_search_that_was_cut_short_says_so(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, texts = random.Random(2), sentences(50)
    texts += [with_changes(text, 2, rng) for text in texts]
    assert find_clusters(indexed(texts), 0.8).complete
    monkeypatch.setattr(clusters, "MOST_EXACT", 3)
    assert not find_clusters(indexed(texts), 0.8).complete


def test_the_index_takes_less_than_a_kilobyte_a_row_however_long_the_texts(indexed: Indexed) -> None:
    index = indexed([text * 20 for text in sentences(300)])
    assert index.bytes_in_memory / len(index) < 700


def test_the_index_on_a_full_disk_is_an_error_of_one_line(small_disk: Path) -> None:
    with RowIndex(42, small_disk) as index, pytest.raises(CannotWriteError, match=FULL):
        for line, text in enumerate(sentences(500)):
            said = [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]
            index.add("train", Row(said, [], f"a.jsonl:{line}"))
        index.shingles(0)  # what is read was written before
