"""The manifest: what a stage records, and what it refuses to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of, write_json
from weights_bridge.run_folder import RunFolder, peak_memory_gib, user_cache, versions


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose stage `prepare` wrote data/train.jsonl and data/valid.jsonl."""
    run = RunFolder(tmp_path / "run")
    with run.stage("prepare", seed=7) as stage:
        for split in ("train", "valid"):
            write_json(run.path("data", f"{split}.jsonl"), {"split": split})
        stage.wrote(run.path("data"))
        stage.facts["rows"] = 2
    return run


def test_a_stage_records_inputs_outputs_and_facts(run: RunFolder, tmp_path: Path) -> None:
    outside = tmp_path / "model.bin"
    outside.write_bytes(b"weights")
    with run.stage("train", [run.path("data", "train.jsonl"), outside]) as stage:
        write_json(run.path("log.jsonl"), 1)
        stage.wrote(run.path("log.jsonl"))
    document = read_json(run.path("manifest.json"))
    assert document["schema"] == "mlx-sentis/manifest/1"
    assert list(document["stages"]) == ["prepare", "train"]
    prepare, train = document["stages"].values()
    assert (prepare["seed"], prepare["facts"], prepare["inputs"]) == (7, {"rows": 2}, {})
    assert prepare["outputs"] == {
        f"data/{split}.jsonl": sha256_of(run.path("data", f"{split}.jsonl")) for split in ("train", "valid")
    }
    assert train["inputs"] == {
        "data/train.jsonl": prepare["outputs"]["data/train.jsonl"],
        str(outside): sha256_of(outside),
    }
    assert train["seconds"] >= 0
    assert train["peak_memory_gib"] > 0
    assert train["versions"]["numpy"] == versions()["numpy"]


def test_an_unaltered_run_has_nothing_altered(run: RunFolder) -> None:
    assert run.altered() == []
    assert run.altered([run.path("data")]) == []


def test_an_altered_input_is_refused_by_name_and_leaves_no_entry(run: RunFolder) -> None:
    write_json(run.path("data", "valid.jsonl"), {"split": "tampered"})
    with pytest.raises(StageError, match=r"stage train: .*\n  data/valid\.jsonl: sha256 found"):  # noqa: SIM117
        with run.stage("train", [run.path("data")]):
            pytest.fail("the stage must not run")
    assert list(run.manifest()["stages"]) == ["prepare"]
    (result,) = run.altered()
    assert (result.reason, result.where) == ("altered", "data/valid.jsonl")


def test_a_deleted_file_inside_an_input_folder_is_refused_by_name(run: RunFolder) -> None:
    run.path("data", "valid.jsonl").unlink()
    with pytest.raises(StageError, match=r"data/valid\.jsonl: recorded, not there"):  # noqa: SIM117
        with run.stage("train", [run.path("data")]):
            pytest.fail("the stage must not run")


def test_a_recorded_file_that_is_gone_is_an_altered_run_and_no_earlier_stage_that_was_not_run(run: RunFolder) -> None:
    gone = run.path("data", "valid.jsonl")
    gone.unlink()
    assert run.is_recorded(gone) and not run.is_recorded(run.path("data", "holdout.jsonl"))
    with pytest.raises(StageError, match=r"files changed since .*\n  data/valid\.jsonl: recorded, not there"):  # noqa: SIM117
        with run.stage("eval", [gone]):
            pytest.fail("the stage must not run")


def prepare_again(run: RunFolder, **rows: str) -> None:
    with run.stage("prepare") as stage:
        for split, text in rows.items():
            write_json(run.path("data", f"{split}.jsonl"), {"split": text})
        write_json(run.path("data", "dataset.json"), rows)
        stage.wrote(run.path("data"))


def test_data_that_was_prepared_after_the_training_is_stale_by_name(run: RunFolder) -> None:
    assert run.stale() == []  # nothing was trained
    with run.stage("train", [run.path("data")]):
        pass
    run.require_trained_data()
    prepare_again(run, train="train", valid="valid")  # the same rows
    run.require_trained_data()
    prepare_again(run, train="train", valid="other", holdout="new")
    assert run.stale() == ["data/holdout.jsonl", "data/valid.jsonl"]
    with pytest.raises(StageError, match=r"the data was prepared after the training:\n  data/holdout") as error:
        run.require_trained_data()
    assert "mlx-sentis train --data" in error.value.hint and "or restore" in error.value.hint
    with run.stage("train", [run.path("data")]):
        pass
    run.require_trained_data()


def test_a_missing_input_is_refused_by_name(run: RunFolder) -> None:
    with pytest.raises(StageError, match=r"inputs are missing:\n  .*gone\.json\n"):  # noqa: SIM117
        with run.stage("train", [run.path("gone.json"), run.path("data")]):
            pytest.fail("the stage must not run")


def test_an_altered_file_that_a_stage_does_not_read_does_not_stop_it(run: RunFolder) -> None:
    write_json(run.path("data", "valid.jsonl"), {"split": "tampered"})
    with run.stage("train", [run.path("data", "train.jsonl")]):
        pass
    assert "train" in run.manifest()["stages"]


def test_an_input_reached_through_a_link_is_checked(run: RunFolder) -> None:
    run.path("link").symlink_to("data")
    write_json(run.path("data", "train.jsonl"), {"split": "tampered"})
    assert [r.where for r in run.altered([run.path("link", "train.jsonl")])] == ["data/train.jsonl"]


def test_an_input_that_changes_while_the_stage_runs_is_recorded_as_it_was_read(run: RunFolder) -> None:
    rows = run.path("data", "train.jsonl")
    read = sha256_of(rows)
    with run.stage("train", [rows]):
        rows.write_text("other")
    assert run.manifest()["stages"]["train"]["inputs"] == {"data/train.jsonl": read}
    assert [result.where for result in run.altered()] == ["data/train.jsonl"]


def test_a_stage_that_raises_leaves_no_entry(run: RunFolder) -> None:
    before = run.path("manifest.json").read_bytes()
    with pytest.raises(RuntimeError), run.stage("train") as stage:
        write_json(run.path("half.json"), 1)
        stage.wrote(run.path("half.json"))
        raise RuntimeError
    assert run.path("manifest.json").read_bytes() == before


def test_a_repeated_stage_replaces_its_entry_and_the_last_writer_wins(run: RunFolder) -> None:
    with run.stage("swap") as stage:
        write_json(run.path("model.json"), 1)
        stage.wrote(run.path("model.json"))
    with run.stage("prepare") as stage:
        write_json(run.path("model.json"), 2)
        stage.wrote(run.path("model.json"))
    assert list(run.manifest()["stages"]) == ["swap", "prepare"]
    assert run.recorded_hashes() == {"model.json": sha256_of(run.path("model.json"))}
    assert run.altered() == []


def test_hidden_files_and_folders_are_not_recorded(run: RunFolder) -> None:
    with run.stage("merge") as stage:
        write_json(run.path("merged", "config.json"), 1)
        write_json(run.path("merged", ".cache", "half.json"), 1)
        write_json(run.path("merged", ".half"), 1)
        stage.wrote(run.path("merged"))
    assert list(run.manifest()["stages"]["merge"]["outputs"]) == ["merged/config.json"]


def test_an_input_that_a_kill_left_aside_comes_back(run: RunFolder) -> None:
    with run.stage("bridge") as stage:
        write_json(run.path("merged", "config.json"), 1)
        stage.wrote(run.path("merged"))
    run.path(".merged-ab").mkdir()
    run.path("merged").rename(run.path(".merged-ab", "old"))
    with run.stage("swap", [run.path("merged")]):
        assert read_json(run.path("merged", "config.json")) == 1
    assert not run.path(".merged-ab").exists()


def test_a_run_can_be_moved(run: RunFolder, tmp_path: Path) -> None:
    run.root.rename(tmp_path / "moved")
    assert RunFolder(tmp_path / "moved").altered() == []


def test_a_folder_without_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="not a run folder"):
        RunFolder.existing(tmp_path)


SCHEMA = {"schema": "mlx-sentis/manifest/1"}
STAGE = {"inputs": {}, "outputs": {}, "facts": {}}


@pytest.mark.parametrize(
    "document",
    [
        *([], {"stages": {}}, SCHEMA, {"schema": "else"}),
        *(SCHEMA | {"stages": stages} for stages in ([], None, {"train": []}, {"train": {}})),
        *(SCHEMA | {"stages": {"train": STAGE | {side: value}}} for side in STAGE for value in (None, [])),
        SCHEMA | {"stages": {"train": STAGE | {"outputs": {"x": 3}}}},
    ],
)
def test_another_document_is_no_manifest(tmp_path: Path, document: object) -> None:
    write_json(tmp_path / "manifest.json", document)
    with pytest.raises(StageError, match=r"manifest\.json: not a manifest of schema mlx-sentis/manifest/1"):
        RunFolder(tmp_path).manifest()


def test_peak_memory_is_in_gib() -> None:
    held = bytearray(1 << 28)  # a quarter GiB, touched
    held[::4096] = b"x" * len(held[::4096])
    assert 0.25 < peak_memory_gib() < 64


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("MLX_SENTIS_CACHE", raising=False)
    assert user_cache() == tmp_path / "xdg" / "mlx-sentis"
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path / "mine"))
    assert user_cache() == tmp_path / "mine"
    monkeypatch.setenv("MLX_SENTIS_CACHE", "")
    assert user_cache() == tmp_path / "xdg" / "mlx-sentis"


def test_peak_memory_is_the_processs_own_not_that_of_the_one_that_started_it() -> None:
    ballast = np.ones(2**26)  # 0.5 GiB
    code = "from weights_bridge.run_folder import peak_memory_gib; print(peak_memory_gib())"
    child = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert child < 0.25 < 0.5 < peak_memory_gib()
    assert ballast.sum() == 2**26
