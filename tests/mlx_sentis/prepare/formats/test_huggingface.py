"""Hugging Face data sets on disk, written by the real libraries."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.ipc
import pytest

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import load_source, open_source
from weights_bridge.errors import StageError

CALLS = [{"name": "open", "arguments": {"thing": "gate"}}, {"name": "wait", "arguments": {"hours": 2}}]
TOOLS = [
    {"name": "open", "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}}},
    {"name": "wait", "parameters": {"type": "object", "properties": {"hours": {"type": "integer"}}}},
]


def chats() -> datasets.Dataset:
    rows = []
    for call in CALLS:
        turn = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]}
        rows.append(
            {"messages": [{"role": "user", "content": "go"}, turn], "tools": TOOLS, "day": datetime.date(2024, 1, 2)}
        )
    return datasets.Dataset.from_list(rows)


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def calls(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.calls[0].as_json() for row in rows]


def test_nulls_that_arrow_filled_in_are_no_arguments(tmp_path: Path) -> None:
    """Arrow gives both calls the keys `thing` and `hours`, and both schemas both properties."""
    chats().save_to_disk(tmp_path / "set")
    assert chats()[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"thing": "gate", "hours": None}
    loaded = load_source(tmp_path / "set", "template")
    assert calls(loaded.splits["train"]) == CALLS
    assert loaded.is_single_file
    source = open_source(tmp_path / "set", "template")
    assert (source.format, source.why) == ("datasets", "keys messages, tools, messages rows; a Hugging Face data set")
    assert [row.source for row in loaded.splits["train"]] == [f"{tmp_path / 'set'}:1", f"{tmp_path / 'set'}:2"]


def test_the_splits_of_a_saved_set_are_ours_by_their_usual_names(tmp_path: Path) -> None:
    splits = {"train": chats(), "validation": chats().select([0]), "test": chats().select([1])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "set")
    loaded = load_source(tmp_path / "set", "template")
    assert {split: len(rows) for split, rows in loaded.splits.items()} == {"train": 2, "valid": 1, "holdout": 1}
    assert not loaded.is_single_file
    assert loaded.splits["holdout"][0].source == f"{tmp_path / 'set'}/test:1"
    assert calls(loaded.splits["holdout"]) == CALLS[1:]  # a selection keeps the whole table and an index


def test_splits_of_unknown_names_are_listed(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": chats(), "train_sft": chats()}).save_to_disk(tmp_path / "set")
    with pytest.raises(StageError, match="its splits are 'train', 'train_sft', wanted train and some of valid"):
        open_source(tmp_path / "set", "template")


@pytest.mark.parametrize("inside", ["", "data"])
def test_parquet_files_are_read_by_their_splits_names(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "set" / inside
    folder.mkdir(parents=True)
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        chats().to_parquet(folder / f"{name}.parquet")
    loaded = load_source(tmp_path / "set", "template")
    assert {split: len(rows) for split, rows in loaded.splits.items()} == {"train": 4, "holdout": 2}
    assert calls(loaded.splits["train"]) == CALLS * 2
    assert loaded.splits["train"][3].source.endswith("set/train:4")


def test_one_parquet_file_is_one_set(tmp_path: Path) -> None:
    chats().to_parquet(tmp_path / "my-rows.parquet")
    loaded = load_source(tmp_path / "my-rows.parquet", "template")
    assert calls(loaded.splits["train"]) == CALLS and loaded.is_single_file


@pytest.mark.parametrize("layout", [pyarrow.ipc.new_file, pyarrow.ipc.new_stream])
def test_an_arrow_file_is_read_in_both_layouts(tmp_path: Path, layout: Any) -> None:
    table = pyarrow.table({"prompt": ["a", "b"], "completion": ["c", "d"], "score": [float("nan"), 1.0]})
    with layout(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    rows = load_source(tmp_path / "rows.arrow", "template").splits["train"]
    assert [row.user_text for row in rows] == ["a", "b"]


def test_a_map_renames_the_columns_of_a_data_set(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"q": ["2+2?"], "a": ["4"]}).save_to_disk(tmp_path / "set")
    loaded = load_source(tmp_path / "set", "template", mapping={"user": "q", "assistant": "a"})
    assert loaded.splits["train"][0].user_text == "2+2?"
    with pytest.raises(StageError, match="found a, q, wanted"):
        load_source(tmp_path / "set", "template")


@pytest.mark.parametrize("name", ["set/data-00000-of-00001.arrow", "rows.parquet", "rows.arrow"])
def test_a_damaged_data_set_is_one_line_and_no_traceback(tmp_path: Path, name: str) -> None:
    chats().save_to_disk(tmp_path / "set")
    (tmp_path / name).write_bytes(b"PAR1 and nothing")
    with pytest.raises(StageError, match="the data set cannot be read: ") as caught:
        open_source(tmp_path / name.partition("/")[0], "template")
    assert "\n" not in caught.value.message


def test_a_data_set_without_rows_is_named(tmp_path: Path) -> None:
    chats().select([]).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(StageError, match=r"rows\.parquet: no rows"):
        open_source(tmp_path / "rows.parquet", "template")


def test_a_missing_library_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats().save_to_disk(tmp_path / "set")
    chats().to_parquet(tmp_path / "rows.parquet")
    for name in ("datasets", "pyarrow.parquet"):  # None is what Python itself puts for a module that cannot be imported
        monkeypatch.setitem(sys.modules, name, None)
    for path in ("set", "rows.parquet"):
        with pytest.raises(StageError, match="the library that reads it is not installed") as caught:
            open_source(tmp_path / path, "template")
        assert caught.value.hint.startswith("pip install datasets")


def test_a_folder_that_is_no_data_set_is_refused_when_one_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no Parquet or Arrow file"):
        open_source(tmp_path, "template", format="datasets")
