"""What `train` refuses on prepared data: exit 1, a line and a hint, nothing trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from helpers import edit_json
from small_training import refused, train

from mlx_sentis.training import step
from mlx_sentis.training.inputs import require_known_ids
from weights_bridge.adapter_file import adapter_of
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_jsonl
from weights_bridge.run_folder import RunFolder


def test_fewer_rows_than_a_batch_are_refused_before_the_weights_are_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlx_sentis.training.stage.load_causal_lm", lambda folder: pytest.fail("weights were read"))
    count = len(read_jsonl(run / "data" / "train.jsonl"))
    refused(train(run, "--set", f"train.batch_rows={count + 1}"), f"split train: {count} rows cannot fill one batch")


def test_a_folder_that_holds_no_prepared_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(
        train(tmp_path / "run", data=tmp_path / "empty"), "not prepared data .*recipe.json, prompt_contract.json, data"
    )
    refused(train(tmp_path / "empty"), "no such file")
    assert not (tmp_path / "run").exists()


def test_another_model_than_the_datas_is_refused(run: Path) -> None:
    refused(train(run, "--model", "else"), "--model else: the data was prepared for ")


def test_a_broken_prompt_contract_is_refused_before_the_first_update(run: Path) -> None:
    def change(contract: dict[str, Any]) -> None:
        contract["ids"][3] += 1

    edit_json(run / "prompt_contract.json", change)
    # a folder without a manifest: the contract itself must notice
    (run / "manifest.json").unlink(missing_ok=True)
    refused(train(run), "the prompt contract does not hold before step 1")
    assert not (run / "checkpoints").exists()


def spoil_row(run: Path, split: str, number: int, change: Any) -> str:
    """Change one row and leave nothing behind that knows the file's hash; return the row's name."""
    path = run / "data" / f"{split}.jsonl"
    rows = read_jsonl(path)
    change(rows[number])
    write_jsonl(path, rows)
    (run / "manifest.json").unlink(missing_ok=True)
    return rows[number]["id"]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_mask_that_is_shifted_in_the_last_row_is_not_trained(run: Path, split: str) -> None:
    def shift(row: dict[str, Any]) -> None:
        row["trained"] = [[start - 8, stop - 8] for start, stop in row["trained"]]

    name = spoil_row(run, split, -1, shift)
    refused(train(run), rf"rows that `prepare` did not write so:\n  row {name}: trained span .* ends in token id")
    assert not (run / "checkpoints").exists()


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("recipe.json", "[1]", r"recipe\.json: found list, wanted an object"),
        ("recipe.json", "{}", r"recipe\.json: lacks model\.name, model\.path"),
        ("recipe.json", '{"model": 3}', r"recipe\.json: lacks model\.name, model\.path"),
        ("prompt_contract.json", "[]", r"prompt_contract\.json: found list, wanted an object"),
        ("data/dataset.json", "[]", r"dataset\.json: found list, wanted an object"),
        ("data/train.jsonl", "[1]\n", r"train\.jsonl: not a prepared row, with id, ids and trained:\n  line 1"),
        ("data/train.jsonl", "{}\n{}\n", r"line 1\n  line 2"),
        ("data/valid.jsonl", '{"id": "a", "ids": [], "trained": []}\n', r"valid\.jsonl: not a prepared row"),
        ("data/valid.jsonl", '{"id": "a", "ids": [1, -2], "trained": [[0, 1]]}\n', r"valid\.jsonl: not a prepared row"),
        ("data/train.jsonl", '{"id": "a", "ids": [1, 2], "trained": [1]}\n', r"train\.jsonl: not a prepared row"),
    ],
)
def test_a_file_of_another_shape_is_refused_in_words(
    run: Path, name: str, content: str, words: str, has_manifest: bool
) -> None:
    (run / name).write_text(content)
    if not has_manifest:
        (run / "manifest.json").unlink()
    refused(train(run), words)


@pytest.mark.parametrize("name", ["recipe.json", "data/train.jsonl", "config.toml"])
def test_a_folder_where_a_file_should_be_is_refused_in_words(run: Path, name: str) -> None:
    if name == "config.toml":
        refused(train(run, "--config", run), "cannot be read: Is a directory")
        return
    (run / name).unlink()
    (run / name).mkdir()
    refused(train(run), f"{name}: not read: Is a directory")


def test_a_text_that_was_changed_with_its_ids_is_found_where_it_is_rendered_again(run: Path) -> None:
    def reword(row: dict[str, Any]) -> None:
        row["messages"][-1]["content"] = "The gate is shut."

    name = spoil_row(run, "train", 20, reword)
    refused(train(run), rf"before step 1:\n(.*\n)*  FAIL row {name} text.*'The gate is shut")


def without_manifest(folder: Path, other: Path) -> Path:
    copy = Path(shutil.copytree(folder, other))
    (copy / "manifest.json").unlink(missing_ok=True)
    return copy


@pytest.mark.parametrize("has_manifest", [True, False])
def test_data_of_another_folder_is_held_against_its_own_records(
    prepared: Path, tmp_path: Path, has_manifest: bool
) -> None:
    data = Path(shutil.copytree(prepared, tmp_path / "data")) if has_manifest else None
    data = data or without_manifest(prepared, tmp_path / "data")
    rows = read_jsonl(data / "data" / "train.jsonl")
    write_jsonl(data / "data" / "train.jsonl", rows[:-1])
    (data / "data" / "holdout.jsonl").unlink()
    result = train(tmp_path / "run", data=data)
    refused(
        result, r"files changed since `prepare` wrote them:\n  data/holdout\.jsonl: .*\n  data/train\.jsonl: sha256"
    )
    assert not (tmp_path / "run").exists()


def test_a_contract_of_another_folder_that_was_altered_is_not_brought(prepared: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(prepared, tmp_path / "data"))
    edit_json(data / "prompt_contract.json", lambda contract: contract.update(train_turns="last"))
    refused(train(tmp_path / "run", data=data), r"prompt_contract\.json: sha256 found")


def test_a_target_that_matches_nothing_is_refused(run: Path) -> None:
    refused(train(run, "--set", "adapter.targets=q_porj"), "'q_porj' matches no module; nearest: q_proj")


def test_ids_beyond_the_vocabulary_are_refused_by_row() -> None:
    rows = [{"id": "train-0001", "ids": [1, 423]}, {"id": "train-0002", "ids": [424, 2]}]
    require_known_ids(rows, 425)
    with pytest.raises(StageError, match="vocabulary of 424:\n  train-0002: token id 424"):
        require_known_ids(rows, 424)


def test_data_with_an_id_beyond_the_vocabulary_is_not_trained_on(run: Path) -> None:
    rows = read_jsonl(run / "data" / "valid.jsonl")
    rows[-1]["ids"][-1] = 5000
    write_jsonl(run / "data" / "valid.jsonl", rows)
    refused(train(run), rf"vocabulary of \d+:\n  {rows[-1]['id']}: token id 5000")


def test_a_loss_that_is_not_finite_leaves_no_entry_and_says_where(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "loss_of_batch", lambda *words: mx.array(mx.nan))
    refused(train(run), r"update 1, epoch 0: loss is nan; rows train-\d{4}, train-\d{4}, .*; nothing trained")
    manifest = RunFolder(run).manifest()["stages"]
    assert "train" not in manifest
    assert json.loads((run / "log.jsonl").read_text().splitlines()[-1])["event"] == "stopped"
    with pytest.raises(StageError, match="no such checkpoint"):
        adapter_of(run)


def test_a_checkpoint_that_is_not_there_is_refused(run: Path) -> None:
    with pytest.raises(StageError, match=r"checkpoints/7/adapter\.safetensors: no such checkpoint"):
        adapter_of(run, "7")
    (run / "checkpoints" / "10").mkdir(parents=True)
    (run / "checkpoints" / "10" / "adapter.safetensors").write_bytes(b"")
    with pytest.raises(StageError) as error:
        adapter_of(run, "7")
    assert error.value.hint == "known: 10"  # whatever command asked
    assert read_json(run / "recipe.json")["architecture"] == "llama"


@pytest.mark.parametrize(
    ("field", "alter"),
    [
        ("padding.value", lambda contract: contract["padding"].update(value=contract["padding"]["value"] + 1)),
        ("rendered", lambda contract: contract.update(rendered=contract["rendered"] + " ")),
        ("ids", lambda contract: contract.update(ids=contract["ids"][:1] + contract["ids"])),
        ("stop_ids", lambda contract: contract.update(stop_ids=[5])),
        ("tool_serialisation.probe_answer", lambda contract: contract["tool_serialisation"].update(probe_answer="{}")),
    ],
)
def test_an_altered_prompt_contract_names_the_field_before_step_1(run: Path, field: str, alter: Any) -> None:
    edit_json(run / "prompt_contract.json", alter)
    result = train(run)
    assert result.exit_code == 1
    assert f"FAIL contract {field}: " in result.stderr
    assert not (run / "checkpoints").exists()


def test_an_altered_prompt_contract_that_still_holds_is_told_by_its_hash(run: Path) -> None:
    with (run / "prompt_contract.json").open("a") as file:
        file.write("\n")
    result = train(run)
    assert result.exit_code == 1
    assert "files changed since they were recorded:\n  prompt_contract.json: sha256 found" in result.stderr
