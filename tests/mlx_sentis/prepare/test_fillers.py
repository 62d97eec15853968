"""Short texts that differ by one word are one group where they ask for the same, and apart where they do not."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.clusters import Clusters, find_clusters
from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import open_source
from mlx_sentis.prepare.stage import prepare_data
from mlx_sentis.prepare.tools import Call
from weights_bridge.files import read_jsonl
from weights_bridge.settings import DataSettings

NOUNS = ["red", "blue", "green", "small", "large", "old", "new", "iron", "oak", "tin", "long", "flat"]
WORDINGS = ("Open the {} box", "Please open the {} box", "Open the {} box please")
OPEN = {"name": "open", "parameters": {"properties": {"what": {"type": "string"}}, "required": ["what"]}}
Clustered = Callable[..., Clusters]


@pytest.fixture
def clustered(tmp_path: Path) -> Iterator[Clustered]:
    """Return the groups of rows given as text to what the call opens (None: prose)."""
    made: list[RowIndex] = []

    def make(rows: Sequence[tuple[str, str | None]], threshold: float = 0.8, **others: Any) -> Clusters:
        index = RowIndex(42, tmp_path)
        made.append(index)
        for split, given in {"train": rows, **others}.items():
            for line, (text, what) in enumerate(given, 1):
                answer: Mapping[str, Any] = {"role": "assistant", "content": f"Answer {line} of {split}."}
                if what is not None:
                    call = {"type": "function", "function": Call("open", {"what": what}).as_json()}
                    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
                index.add(split, Row([{"role": "user", "content": text}, dict(answer)], [OPEN], f"{split}:{line}"))
        return find_clusters(index, threshold)

    yield make
    for index in made:
        index.__exit__(None, None, None)


def sizes(found: Clusters) -> list[int]:
    return sorted(Counter(found.labels.tolist()).values(), reverse=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("open the gate", "please open the gate"),
        ("open the gate", "Open the gate, please!"),
        ("please open the gate", "open the gate please"),
        ("turn the light on", "turn on the light"),
        ("open gate", "open the gate"),
        ("打开大门", "请打开大门"),
    ],
)
def test_a_word_put_in_left_out_or_moved_makes_no_other_text(clustered: Clustered, first: str, second: str) -> None:
    assert sizes(clustered([(first, "gate"), (second, "gate")])) == [2]
    assert sizes(clustered([(second, None), (first, None)])) == [2]


@pytest.mark.parametrize(
    "rows",
    [
        [("open the gate", "gate"), ("open the chest", "chest")],
        [("open the gate", "gate"), ("open the old gate", "old gate")],
        [("open the gate", "gate"), ("unlock the gate", "gate")],  # another word is another phrasing
        [("open the gate", "gate"), ("would you open the gate", "gate")],
        [("hello", None), ("hello there", None)],
    ],
)
def test_another_command_and_another_phrasing_stay_apart(clustered: Clustered, rows: list[tuple[str, str]]) -> None:
    assert sizes(clustered(rows)) == [1, 1]


def test_threshold_one_groups_equal_texts_only(clustered: Clustered) -> None:
    assert sizes(clustered([("open the gate", "gate"), ("please open the gate", "gate")], 1.0)) == [1, 1]


def test_a_filler_word_in_another_given_split_is_told(clustered: Clustered) -> None:
    train = [("open the gate", "gate"), ("close the door", "door")]
    found = clustered(train, holdout=[("please open the gate", "gate"), ("open the gate now", "gate")])
    assert [(pair.first, pair.second, round(pair.similarity, 2)) for pair in found.leaks] == [
        (0, 2, 0.71),
        (0, 3, 0.71),
    ]


def test_every_wording_of_one_command_stands_in_one_split(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    rows = [
        {"user": wording.format(noun), "call": {"name": "open", "arguments": {"what": noun}}}
        for wording in WORDINGS
        for noun in NOUNS
    ]
    (tmp_path / "tools.json").write_text(json.dumps([OPEN]), encoding="utf-8")
    prepare_data(jsonl(rows), llama.folder, tmp_path / "run", llama.recipe, DataSettings())
    splits = defaultdict(set)
    for split in ("train", "valid", "calibration", "holdout"):
        for row in read_jsonl(tmp_path / "run" / "data" / f"{split}.jsonl"):
            splits[row["expect"]["arguments"]["what"]].add(split)
    assert len(splits) == 12
    assert {len(found) for found in splits.values()} == {1}
    assert {split for found in splits.values() for split in found} == {"train", "valid", "calibration", "holdout"}


def test_the_shipped_commands_are_still_cut_finely(tmp_path: Path) -> None:
    source = open_source("npc-commands", "system-block")
    with RowIndex(42, tmp_path) as index:
        for split in source.files:
            for row in source.rows(split):
                assert isinstance(row, Row)
                index.add("train", row)
        found = sizes(find_clusters(index, 0.8))
    assert sum(found) == 500
    assert found[0] <= 4
    assert len(found) >= 400
