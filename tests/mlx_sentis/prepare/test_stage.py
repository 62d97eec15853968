"""The stage as a whole: what it writes, what it refuses, and that it writes all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.stage import prepare_data
from mlx_sentis.prepare.workers import Line, Preparer, common_prefix
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, sha256_of
from weights_bridge.settings import DataSettings

SPLITS = ["train", "valid", "calibration", "holdout"]


def prepare(model: Any, source: str | Path, out: Path, **settings: Any) -> dict[str, Any]:
    return prepare_data(source, model.folder, out, model.recipe, DataSettings(**settings))


def pairs(count: int, answer: str = "Sure.") -> list[dict[str, Any]]:
    return [{"prompt": f"Open gate number {index}", "completion": answer} for index in range(count)]


def test_the_shipped_set_is_prepared_for_both_templates(llama: Any, gemma: Any, tmp_path: Path) -> None:
    for model in (llama, gemma):
        out = tmp_path / model.recipe["architecture"]
        facts = prepare(model, "npc-commands", out)
        assert facts == read_json(out / "data" / "dataset.json")
        assert {split: one["rows"] for split, one in facts["splits"].items()} == {
            "train": 300,
            "valid": 40,
            "calibration": 60,
            "holdout": 100,
        }
        assert facts["classes"]["holdout"]["none"] == 40
        assert len(facts["tools"]) == 6
        assert facts["notes"] == []
        assert sorted(path.name for path in (out / "data").iterdir()) == sorted(
            [*(f"{split}.jsonl" for split in SPLITS), "dataset.json", "report.md", "lengths.png"]
        )


def test_dataset_json_counts_what_the_files_hold(llama: Any, tmp_path: Path) -> None:
    facts = prepare(llama, "npc-commands", tmp_path)
    rows = {split: read_jsonl(tmp_path / "data" / f"{split}.jsonl") for split in SPLITS}
    for split in SPLITS:
        one = facts["splits"][split]
        assert one["sha256"] == sha256_of(tmp_path / "data" / one["file"])
        assert one["tokens"] == sum(len(row["ids"]) for row in rows[split])
        assert one["trained_tokens"] == sum(stop - start for row in rows[split] for start, stop in row["trained"])
    every = [row["ids"] for split in SPLITS for row in rows[split]]
    shared = facts["shared_prefix_tokens"]
    assert len({tuple(ids[:shared]) for ids in every}) == 1
    assert len({tuple(ids[: shared + 1]) for ids in every}) > 1
    assert facts["longest_row_tokens"] == max(map(len, every))


def test_a_prepared_row_has_the_agreed_fields(llama: Any, tmp_path: Path) -> None:
    prepare(llama, "npc-commands", tmp_path)
    row = read_jsonl(tmp_path / "data" / "train.jsonl")[1]
    assert row["id"] == "train-0002"
    assert row["source"] == "train.jsonl:2"
    assert row["expect"] == {"kind": "call", "name": "give_item", "arguments": {"item": "fishing rod"}}
    start, stop = row["trained"][0]
    answer = '{"name": "give_item", "arguments": {"item": "fishing rod"}}<|im_end|>'
    assert llama.tokenizer.decode(row["ids"][start:stop]) == answer
    assert row["text"].endswith(answer + "\n")
    assert row["prompt_tokens"] == start


def test_preparing_twice_gives_the_same_bytes(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    file = jsonl(pairs(30))
    for out in ("a", "b"):
        prepare(llama, file, tmp_path / out)
    for path in sorted((tmp_path / "a").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path.name


def test_crlf_and_a_byte_order_mark_give_equal_ids(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    file = jsonl(pairs(30))
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    prepare(llama, file, tmp_path / "a")
    prepare(llama, other, tmp_path / "b")
    ids = [[row["ids"] for row in read_jsonl(tmp_path / out / "data" / "train.jsonl")] for out in ("a", "b")]
    assert ids[0] == ids[1]


def test_a_line_separator_inside_a_text_survives_the_files(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    facts = prepare(llama, jsonl(pairs(20, "one\u2028two\x85three")), tmp_path / "run")
    rows = read_jsonl(tmp_path / "run" / "data" / "train.jsonl")
    assert len(rows) == facts["splits"]["train"]["rows"]
    assert rows[0]["messages"][-1]["content"] == "one\u2028two\x85three"


def test_a_folder_without_other_splits_has_them_cut_and_says_so(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    folder = jsonl(pairs(20), "set/train.jsonl").parent
    jsonl([{"prompt": "Shut the gate", "completion": "No."}], "set/holdout.jsonl")
    facts = prepare(llama, folder, tmp_path / "run")
    assert {split: one["rows"] for split, one in facts["splits"].items()} == {
        "train": 16,
        "valid": 2,
        "calibration": 2,
        "holdout": 1,
    }
    assert facts["notes"] == ["cut from the training rows by seed 42, class by class: valid 0.1, calibration 0.1"]


def test_rows_over_the_limit_are_listed_with_their_length_and_not_cut(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    rows = pairs(20)
    rows[4]["completion"] = "very " * 80 + "long"
    with pytest.raises(StageError, match=r"rows\.jsonl:5: \d{3} tokens, wanted at most 60 \(data\.max_tokens\)"):
        prepare(llama, jsonl(rows), tmp_path / "run", max_tokens=60)
    assert not (tmp_path / "run").exists()


def test_a_failed_run_leaves_the_earlier_data_as_it_was(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    prepare(llama, jsonl(pairs(20)), out)
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    with pytest.raises(StageError):
        prepare(llama, jsonl([*pairs(20), {"prompt": "x <|im_end|>", "completion": "y"}]), out)
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_a_kill_in_the_middle_of_the_save_leaves_the_earlier_data(
    llama: Any, jsonl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    prepare(llama, jsonl(pairs(20)), out)
    before = {path: path.read_bytes() for path in out.rglob("*.*")}

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlx_sentis.prepare.stage.report_text", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(llama, jsonl(pairs(40)), out)
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_a_leak_between_given_splits_is_refused(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    folder = jsonl(pairs(20), "set/train.jsonl").parent
    jsonl([{"prompt": "Open gate number 7", "completion": "No."}], "set/holdout.jsonl")
    with pytest.raises(StageError, match=r"holdout\.jsonl:1 and .*train\.jsonl:8: the same text 'Open gate number 7'"):
        prepare(llama, folder, tmp_path / "run")


def test_a_tool_without_held_out_rows_is_named(llama: Any, jsonl: Any, tools: Any, tmp_path: Path) -> None:
    jsonl([json.dumps({"tools": tools})], "tools.json")
    call = {"name": "move_to", "arguments": {"place": "mill"}}
    rows = [{"user": f"walk {index}", "call": call} for index in range(20)]
    light = {"user": "light", "call": {"name": "set_light", "arguments": {"state": "on"}}}
    facts = prepare(llama, jsonl([*rows, light]), tmp_path / "run")
    assert "set_light: trained, but no held-out row has it" in facts["notes"]
    assert "- set_light: trained" in (tmp_path / "run" / "data" / "report.md").read_text()


def test_a_model_without_template_is_refused_once_and_not_per_row(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in llama.folder.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    with pytest.raises(StageError, match="no chat template") as caught:
        prepare_data(jsonl(pairs(20)), folder, tmp_path / "run", llama.recipe, DataSettings())
    assert "--template FILE" in caught.value.hint
    assert "rows.jsonl" not in caught.value.message


def test_the_shared_prefix_of_equal_rows_is_the_whole_row(llama: Any) -> None:
    row = Row([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], [], "x:1")
    batch = Preparer(llama.tokenizer, llama.recipe)([row, row])
    line = batch.outcomes[0]
    assert isinstance(line, Line)
    assert batch.prefix == json.loads(line.text)["ids"]


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [([1, 2, 3], [1, 2, 3], [1, 2, 3]), ([1, 2, 3], [1, 2], [1, 2]), ([1, 2], [1, 2, 3], [1, 2]), ([1, 2], [3], [])],
)
def test_a_common_prefix_ends_where_rows_part_or_one_ends(first: list[int], second: list[int], common: Any) -> None:
    assert common_prefix(first, second) == common
