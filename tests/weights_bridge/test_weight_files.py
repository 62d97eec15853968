"""Which files are taken as a model's weights, and which are refused before a byte of them is used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from weights_bridge.adapter_file import read_adapter
from weights_bridge.errors import StageError
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.weight_files import INDEX, SINGLE, open_weights, require_inside, weight_files

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(toy_model: Callable[[str], Path], tmp_path: Path) -> Path:
    """A toy llama in two shards with an index."""
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "sharded"))
    tensors = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    names = list(tensors)
    where = {name: FIRST if i < 5 else SECOND for i, name in enumerate(names)}
    for file in (FIRST, SECOND):
        save_file({n: tensors[n] for n in names if where[n] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(StageError) as caught:
        open_weights(folder)
    return caught.value.message


def test_shards_are_those_of_the_index(sharded: Path) -> None:
    save_file({"stranger": np.ones(2, np.float32)}, sharded / "other.safetensors")
    assert [file.name for file in weight_files(sharded)] == [FIRST, SECOND]
    open_model_folder(sharded).check_tensors(values=True)


def test_one_file_goes_before_an_index_as_in_transformers(sharded: Path) -> None:
    save_file({"x": np.ones(2, np.float32)}, sharded / SINGLE)
    assert list(open_weights(sharded)) == ["x"]


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "..\\x.safetensors", "C:x.safetensors", ".."]
)
def test_a_shard_name_that_leaves_the_directory_is_refused(sharded: Path, name: str) -> None:
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": name}))
    assert f"{name!r}: not the name of a file in the directory" in refusal(sharded)


@pytest.mark.parametrize("name", ["a\0b.safetensors", "a" * 300 + ".safetensors", "\ud800.safetensors"], ids=ascii)
def test_a_name_that_no_file_can_have_is_refused(sharded: Path, name: str) -> None:
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": name}))
    assert f"{name[:80]!r}: no place on this system" in refusal(sharded)


@pytest.mark.parametrize("name", [SINGLE, "config.json"])
def test_links_in_a_circle_are_refused(toy_model: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "model"))
    (folder / name).unlink()
    (folder / name).symlink_to(name)
    with pytest.raises(StageError, match=f"'{name}': no place on this system: Symlink loop"):
        open_model_folder(folder).check_tensors()


def test_an_index_never_names_a_pickle(sharded: Path) -> None:
    (sharded / "x.bin").write_bytes(b"")
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": "x.bin"}))
    assert "'x.bin': not a safetensors file" in refusal(sharded)


@pytest.mark.parametrize("document", ["[]", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_a_map_is_refused(sharded: Path, document: str) -> None:
    (sharded / INDEX).write_text(document)
    assert "no weight_map" in refusal(sharded)


def test_a_missing_shard_is_named_with_and_without_an_index(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    assert refusal(sharded).splitlines()[1:] == [f"  {SECOND}: missing"]
    (sharded / INDEX).unlink()
    assert refusal(sharded).splitlines()[1:] == [f"  {SECOND}: missing"]


def test_a_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    second = load_file(sharded / SECOND)
    save_file(second | {"model.embed_tokens.weight": np.ones((2, 2), np.float32)}, sharded / SECOND)
    assert f"model.embed_tokens.weight: in {FIRST} and in {SECOND}" in refusal(sharded)


def test_an_index_that_disagrees_with_its_files_is_refused(sharded: Path) -> None:
    def change(index: dict[str, dict[str, str]]) -> None:
        index["weight_map"]["gone"] = FIRST
        index["weight_map"]["model.norm.weight"] = FIRST
        del index["weight_map"]["model.layers.1.mlp.up_proj.weight"]

    edit_json(sharded / INDEX, change)
    assert refusal(sharded).splitlines()[1:] == [
        f"  gone: the index says {FIRST}, found in no file",
        f"  model.layers.1.mlp.up_proj.weight: in {SECOND}, not in the index",
        f"  model.norm.weight: the index says {FIRST}, found in {SECOND}",
    ]


def test_links_out_of_the_directory_are_refused_and_links_inside_are_not(sharded: Path, tmp_path: Path) -> None:
    (sharded / FIRST).rename(tmp_path / "elsewhere.safetensors")
    (sharded / FIRST).symlink_to(tmp_path / "elsewhere.safetensors")
    assert f"{FIRST}: a link to {tmp_path / 'elsewhere.safetensors'}, outside of the directory" in refusal(sharded)
    (sharded / FIRST).unlink()
    (tmp_path / "elsewhere.safetensors").rename(sharded / "blob")
    (sharded / FIRST).symlink_to("blob")
    open_model_folder(sharded).check_tensors()


def test_a_snapshot_of_the_hubs_cache_links_to_its_blobs(sharded: Path, tmp_path: Path) -> None:
    cache = tmp_path / "models--a--b"
    (cache / "blobs").mkdir(parents=True)
    snapshot = Path(shutil.move(sharded, cache / "snapshots" / "1234"))
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(cache / "blobs" / str(number))
        file.symlink_to(f"../../blobs/{number}")
    open_model_folder(snapshot).check_tensors()
    (snapshot / FIRST).unlink()
    (snapshot / FIRST).symlink_to(tmp_path)
    assert "outside of the directory" in refusal(snapshot)


def test_a_tokenizer_that_links_elsewhere_is_not_copied(
    toy_model: Callable[[str], Path], made_adapter: Callable[..., Path], tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    (tmp_path / "secret").write_text("secret")
    (base / "vocab.json").symlink_to(tmp_path / "secret")
    with pytest.raises(StageError, match=r"vocab\.json: a link to .*secret, outside"):
        write_merged(open_model_folder(base), read_adapter(made_adapter()), tmp_path / "merged", [2])
    assert not (tmp_path / "merged").exists()
    assert require_inside(base, "config.json") == base / "config.json"


def test_faults_of_several_files_are_named_at_once(sharded: Path) -> None:
    for name in (FIRST, SECOND):
        (sharded / name).write_bytes((sharded / name).read_bytes()[:-1])
    message = refusal(sharded)
    assert FIRST in message and SECOND in message and message.count("not a whole safetensors file") == 2


def test_a_pickle_is_named_and_never_opened(sharded: Path) -> None:
    for file in sharded.glob("*.safetensors*"):
        file.unlink()
    (sharded / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(StageError, match=r"no \*\.safetensors file, and pytorch_model\.bin is pickle") as caught:
        open_weights(sharded)
    assert "--allow-pickle" in caught.value.hint


def test_nan_and_wrong_shapes_stand_in_one_error_and_nothing_is_written(
    toy_model: Callable[[str], Path], made_adapter: Callable[..., Path], tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    tensors = load_file(base / SINGLE)
    tensors["model.norm.weight"][3] = np.nan
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"][:-1]
    save_file(tensors, base / SINGLE)
    with pytest.raises(StageError) as caught:
        write_merged(open_model_folder(base), read_adapter(made_adapter()), tmp_path / "merged", [2])
    assert caught.value.message.splitlines()[1:] == [
        "  model.layers.0.mlp.up_proj.weight: found (95, 64), wanted (96, 64)",
        "  model.norm.weight: holds NaN or infinities",
    ]
    assert not (tmp_path / "merged").exists()


def test_remote_code_is_never_trusted_and_pickles_are_loaded_in_one_place_only() -> None:
    root = Path(__file__).parents[2]
    sources = [
        (path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
        for package in ("weights_bridge", "mlx_sentis", "converters", "parity", "benchmarks")
        for path in (root / package).rglob("*.py")
    ]
    assert len(sources) > 100
    for name, text in sources:
        assert text.count("trust_remote_code") == text.count("trust_remote_code=False"), name
        assert "import pickle" not in text and "allow_pickle=True" not in text, name
        assert text.count("torch.load(") == text.count("weights_only=True") <= (name == PICKLE_READER), name


PICKLE_READER = "converters/pickle_checkpoint.py"
