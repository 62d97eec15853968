"""What gate A0 says of a merged directory before anything is computed: each key and each tensor, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import edit_json, write_moved
from safetensors.numpy import load_file, save_file

from parity.a0 import bridge_results
from parity.gate_request import GateRequest
from parity.self_test import merged_trials
from weights_bridge.adapter_file import read_adapter
from weights_bridge.compare import GateResult
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.settings import AdapterSettings, Settings


@pytest.fixture
def merged(toy_model: Callable[[str], Path], tmp_path: Path) -> Callable[[str], tuple[ModelFolder, Path, Path]]:
    """Return a toy, a moved adapter of it and both merged; the unaltered directory is equal in every key and tensor."""

    def make(model_type: str) -> tuple[ModelFolder, Path, Path]:
        base, adapter, out = open_model_folder(toy_model(model_type)), tmp_path / "a.safetensors", tmp_path / "merged"
        write_moved(base.path, adapter, Settings(adapter=AdapterSettings("lora", 4, 8.0)))
        write_merged(base, read_adapter(adapter), out, [2])
        (unaltered,) = bridge_results(base, adapter, out)
        assert (unaltered.passed, unaltered.reason) == (True, "exact")
        return base, adapter, out

    return make


def failures(results: list[GateResult]) -> list[tuple[str, str, str]]:
    return [(result.tensor, result.reason, result.detail) for result in results if not result.passed]


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("llama", "max_position_embeddings", 100),
        ("llama", "rope_theta", 10000.0),
        ("llama", "hidden_act", "gelu"),
        ("llama", "rope_scaling", {"rope_type": "linear", "factor": 2.0}),
        ("smollm3", "no_rope_layers", [1, 1]),
        ("gemma2", "final_logit_softcapping", 6.0),
        ("gemma2", "attn_logit_softcapping", 21.0),
        ("gemma2", "query_pre_attn_scalar", 16),
        ("gemma3_text", "sliding_window", 31),
        ("gemma3_text", "a_key_of_tomorrow", 1),
    ],
)
def test_an_altered_key_of_the_configuration_is_named(
    merged: Callable[[str], Any], model_type: str, key: str, value: object
) -> None:
    base, adapter, out = merged(model_type)

    def change(config: dict[str, Any]) -> None:
        config[key] = value
        if key == "rope_theta":
            config["rope_parameters"]["rope_theta"] = value

    edit_json(out / "config.json", change)
    found = {name: detail for name, reason, detail in failures(bridge_results(base, adapter, out))}
    assert found.pop(f"merged config {key}") == f"found {value!r}, wanted {base.config.get(key)!r}"
    assert found.keys() <= {"merged config rope_parameters"}  # it says the same base


@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight"])
def test_a_missing_tensor_is_named_an_untied_head_too(merged: Callable[[str], Any], name: str) -> None:
    base, adapter, out = merged("qwen3")
    tensors = load_file(out / "model.safetensors")
    del tensors[name]
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    assert failures(bridge_results(base, adapter, out)) == [(f"merged {name}", "missing", "")]


def test_the_self_test_alters_a_tensor_of_a_directory_in_shards(merged: Callable[[str], Any]) -> None:
    base, adapter, out = merged("llama")
    tensors = load_file(out / "model.safetensors")
    names = list(tensors)
    for number, part in enumerate((names[:3], names[3:]), 1):
        save_file({n: tensors[n] for n in part}, out / f"model-{number:05d}-of-00002.safetensors", {"format": "pt"})
    (out / "model.safetensors").unlink()
    places = (str(base.path), str(out), str(adapter))
    trials = merged_trials(base, GateRequest(*places, [], [], 0, base.config["vocab_size"]))
    assert [(trial.caught, trial.found) for trial in trials] == [
        (True, "model.embed_tokens.weight"),
        (True, "merged config rms_norm_eps"),
    ]


def test_an_extra_and_an_altered_tensor_are_named_with_how_much_differs(merged: Callable[[str], Any]) -> None:
    base, adapter, out = merged("llama")
    tensors = load_file(out / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5:8] += 0.5
    tensors["model.stranger.weight"] = np.ones(3, np.float32)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    name = "merged model.layers.1.mlp.up_proj.weight"
    detail = "3 of 6144 values differ from base + adapter, max 5.00e-01"
    assert sorted(failures(bridge_results(base, adapter, out))) == [
        (name, "altered", detail),
        ("merged model.stranger.weight", "extra", ""),
    ]
