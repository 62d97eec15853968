"""The reference itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlx_sentis.demo.toy import write_toy_model
from parity.runners.torch_causal_lm import TorchCausalLM
from weights_bridge.errors import StageError

IDS = list(range(5, 65))


def test_sliding_layers_keep_every_token_in_the_reference_cache(exported: Callable[[str], Any]) -> None:
    found = TorchCausalLM(exported("gemma3_text").model).forward(IDS)
    assert [key.shape for key in found.keys] == [(1, 2, 60, 16)] * 2
    assert len(found.hidden) == 3 and found.logits.shape == (1, 60, 424)


def test_greedy_ignores_end_tokens_and_agrees_with_the_forward(exported: Callable[[str], Any]) -> None:
    model = TorchCausalLM(exported("gemma3_text").model)
    ids, logits = model.greedy(IDS, 6)
    assert len(ids) == len(logits) == 6
    whole = model.forward([*IDS, *ids[:-1]]).logits[0]
    assert whole[len(IDS) - 1 :].argmax(-1).tolist() == ids
    assert np.allclose(whole[len(IDS) - 1], logits[0], atol=1e-4)


def test_no_gradient_is_recorded_and_later_autograd_still_works(exported: Callable[[str], Any]) -> None:
    model = TorchCausalLM(exported("llama").model)
    model.forward(IDS)
    assert not any(parameter.requires_grad for parameter in model.model.parameters())
    assert not next(model.model.parameters()).is_inference()


def test_a_directory_that_lacks_a_weight_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_toy_model(tmp_path / "toy", "llama")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        TorchCausalLM(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"no config\.json"):
        TorchCausalLM(tmp_path)
