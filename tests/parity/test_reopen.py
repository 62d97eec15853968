"""What a bridge wrote is opened by the libraries it is for; what they refuse is one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from parity.runners import reopen, reopen_mlx
from weights_bridge.errors import StageError

NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def spoilt(toy_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a request for a copy of a toy whose tensors were changed."""

    def spoil(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "copy"))
        tensors = dict(load_file(folder / "model.safetensors"))
        change(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return {"folder": str(folder)}

    return spoil


@pytest.mark.parametrize("model_type", ["llama", "phi3", "gemma2"])
def test_whole_directories_are_opened_by_both(toy_model: Callable[[str], Path], model_type: str) -> None:
    for runner in (reopen, reopen_mlx):
        runner.answer({"folder": str(toy_model(model_type))})


def test_a_missing_tensor_is_named_by_both(spoilt: Callable[..., dict[str, Any]]) -> None:
    request = spoilt(lambda tensors: tensors.pop(NORM))
    with pytest.raises(StageError, match=f"mlx-lm does not load it: .*{NORM}"):
        reopen_mlx.answer(request)
    with pytest.raises(StageError, match=f"missing keys: {NORM}"):
        reopen.answer(request)


def test_a_directory_whose_answers_are_not_finite_is_refused(spoilt: Callable[..., dict[str, Any]]) -> None:
    request = spoilt(lambda tensors: tensors.update({NORM: np.full_like(tensors[NORM], np.nan)}))
    with pytest.raises(StageError, match="computes what is not finite"):
        reopen_mlx.answer(request)


@pytest.mark.parametrize(
    ("runner", "change"),
    [
        (reopen, {"hidden_act": "swish7"}),
        (reopen, {"rope_parameters": {"rope_type": "spiral", "rope_theta": 10000.0}}),
        (reopen_mlx, {"rope_scaling": {"rope_type": "spiral"}}),
    ],
    ids=str,
)
def test_whatever_a_configuration_makes_a_library_raise_is_one_line(
    toy_model: Callable[[str], Path], tmp_path: Path, runner: Any, change: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "copy"))
    edit_json(folder / "config.json", lambda config: config.update(change))
    with pytest.raises(StageError, match="does not load it: ") as caught:
        runner.answer({"folder": str(folder)})
    assert "\n" not in caught.value.message
