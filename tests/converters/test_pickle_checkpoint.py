"""Pickles: weights come through bit by bit, code never runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.pickle_checkpoint import INDEX, pickle_files, tensors_of_pickle, write_safetensors_of_pickles
from weights_bridge.errors import StageError
from weights_bridge.weight_files import open_weights


class Planted:
    """What an attacker would put into a checkpoint."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def test_code_in_a_pickle_is_refused_and_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    torch.save({"x": torch.ones(2), "y": Planted()}, "pytorch_model.bin")
    with pytest.raises(StageError, match="not read as weights only"):
        tensors_of_pickle(tmp_path / "pytorch_model.bin")
    assert not (tmp_path / "ran").exists()
    torch.load("pytorch_model.bin", weights_only=False)  # the plant is a real one
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "float8_e4m3fn"])
def test_every_type_comes_through_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    import torch

    bits = torch.arange(240, dtype=torch.uint8)
    tensor = bits.view(getattr(torch, dtype)).reshape(2, -1)
    torch.save({"state_dict": {"x": tensor, "turned": tensor.T}}, tmp_path / "a.ckpt")
    found = tensors_of_pickle(tmp_path / "a.ckpt")
    assert found["x"].tobytes() == bits.numpy().tobytes() and found["x"].dtype.name == dtype
    assert found["turned"].shape == tensor.T.shape


def test_tensors_that_safetensors_have_no_form_for_are_refused_by_name(tmp_path: Path) -> None:
    import torch

    strange = {
        "sparse": torch.eye(3).to_sparse(),
        "complex": torch.ones(2, dtype=torch.complex64),
        "nowhere": torch.ones(2, device="meta"),
    }
    for name, tensor in strange.items():
        torch.save({"good": torch.ones(2), name: tensor}, tmp_path / "a.bin")
        with pytest.raises(StageError, match=f"no form for:\n  {name}: "):
            tensors_of_pickle(tmp_path / "a.bin")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
def test_a_single_number_comes_through(tmp_path: Path, dtype: str) -> None:
    import torch

    torch.save({"x": torch.tensor(1.5).to(getattr(torch, dtype))}, tmp_path / "a.bin")
    found = tensors_of_pickle(tmp_path / "a.bin")["x"]
    assert (found.shape, found.dtype.name, float(found)) == ((), dtype, 1.5)


@pytest.mark.parametrize("document", [[], {}, {"weight_map": []}, {"weight_map": {"x": 3}}], ids=str)
def test_an_index_of_pickles_that_is_none_is_one_line(tmp_path: Path, document: object) -> None:
    (tmp_path / INDEX).write_text(json.dumps(document))
    with pytest.raises(StageError, match="no weight_map of tensor names to file names"):
        pickle_files(tmp_path)


def test_shards_of_pickles_become_safetensors(tmp_path: Path) -> None:
    import torch

    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    parts = {"b.bin": {"x": torch.rand(3)}, "a.bin": {"y": torch.rand(2, 2).bfloat16()}}
    for name, part in parts.items():
        torch.save(part, tmp_path / "in" / name)
    (tmp_path / "in" / "training_args.bin").write_bytes(b"no weights")
    (tmp_path / "in" / INDEX).write_text(json.dumps({"weight_map": {"x": "b.bin", "y": "a.bin"}}))
    assert write_safetensors_of_pickles(tmp_path / "in", tmp_path / "out") == ["model.safetensors"]
    found = open_weights(tmp_path / "out")
    np.testing.assert_array_equal(found["x"].tensor("x"), parts["b.bin"]["x"].numpy())
    assert found["y"].tensor("y").tobytes() == parts["a.bin"]["y"].view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("content", [[1], {"a": 1}, {}, 3])
def test_what_is_not_tensors_by_name_is_refused(tmp_path: Path, content: object) -> None:
    import torch

    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(StageError, match=r"wanted tensors by name|'a' is no tensor"):
        tensors_of_pickle(tmp_path / "x.pt")
    (tmp_path / "y.pt").write_bytes(b"text")
    with pytest.raises(StageError, match="not read as weights only"):
        tensors_of_pickle(tmp_path / "y.pt")


def test_an_index_of_pickles_cannot_leave_the_directory(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x.bin").write_bytes(b"")
    (tmp_path / "in" / INDEX).write_text(json.dumps({"weight_map": {"x": "../x.bin"}}))
    with pytest.raises(StageError, match=r"\.\./x\.bin: .*outside of the directory"):
        pickle_files(tmp_path / "in")
