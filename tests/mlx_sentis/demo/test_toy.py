"""Toy models: deterministic, complete, and telling enough for every gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import FULL
from safetensors.numpy import load_file

from mlx_sentis.demo.toy import MODEL_TYPES, write_toy_model
from weights_bridge.errors import StageError
from weights_bridge.model_folder import open_model_folder


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_toy_model_has_every_tensor_of_its_table(toy_model: Callable[[str], Path], model_type: str) -> None:
    open_model_folder(toy_model(model_type)).check_tensors()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    again = write_toy_model(tmp_path / "again", "llama")
    for path in sorted(toy_model("llama").iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    other = load_file(write_toy_model(tmp_path / "other", "llama", seed=1) / "model.safetensors")
    for name, array in load_file(again / "model.safetensors").items():
        assert np.abs(other[name] - array).max() > 0.01, name


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_no_weight_is_trivial(toy_model: Callable[[str], Path], model_type: str) -> None:
    for name, array in load_file(toy_model(model_type) / "model.safetensors").items():
        assert array.std() > 0.01, name  # a norm of ones would hide a forgotten norm
        assert np.isfinite(array).all()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_torch_and_mlx_agree_on_a_toy_model(toy_model: Callable[[str], Path], model_type: str) -> None:
    import mlx.core as mx
    import torch

    from mlx_sentis.training.definitions import load_causal_lm
    from parity.runners.torch_gate import load
    from weights_bridge.compare import psnr_db

    ids = np.random.default_rng(0).integers(0, 420, (1, 130))
    model = load_causal_lm(open_model_folder(toy_model(model_type)))
    ours = np.array(model.logits(model.hidden(model.embed(mx.array(ids)))))
    theirs = load(str(toy_model(model_type)), torch.float32)(
        input_ids=torch.from_numpy(ids), use_cache=False
    ).logits.numpy()
    assert psnr_db(theirs, ours) > 115


SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("scaled", [False, True])
def test_torch_and_mlx_agree_where_only_transformers_5s_places_are_filled(
    toy_model: Callable[[str], Path], tmp_path: Path, scaled: bool
) -> None:
    """mlx-lm alone reads neither base nor scaling there: below 40 dB."""
    import shutil

    import mlx.core as mx
    import torch
    from helpers import edit_json

    from mlx_sentis.training.definitions import load_causal_lm
    from parity.runners.torch_gate import load
    from weights_bridge.compare import psnr_db

    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "model"))
    edit_json(folder / "config.json", lambda c: c.pop("rope_theta"))
    if scaled:
        more = SCALED | {"original_max_position_embeddings": 64}
        edit_json(folder / "config.json", lambda c: c["rope_parameters"].update(more))
    ids = np.random.default_rng(0).integers(0, 420, (1, 130))

    def level(model: object) -> float:
        ours = np.array(model.logits(model.hidden(model.embed(mx.array(ids)))))  # type: ignore[attr-defined]
        theirs = load(str(folder), torch.float32)(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()
        return psnr_db(theirs, ours)

    opened = open_model_folder(folder)
    assert level(load_causal_lm(opened)) > 110
    opened.config.pop("rope_scaling" if scaled else "rope_theta")
    assert level(load_causal_lm(opened)) < 40


def test_an_unknown_type_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="unknown architecture"):
        write_toy_model(tmp_path / "x", "lama")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(small_disk: Path) -> None:
    with pytest.raises(StageError, match=FULL):
        write_toy_model(small_disk / "toy", "llama")
    assert list(small_disk.iterdir()) == []
