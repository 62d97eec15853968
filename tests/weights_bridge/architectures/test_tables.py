"""The tables against transformers' own classes, and the names against mlx-lm's own definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.demo.toy import MODEL_TYPES
from weights_bridge import architectures
from weights_bridge.errors import StageError
from weights_bridge.model_folder import normalised_config

VARIANTS = [
    *((model_type, {}) for model_type in MODEL_TYPES),
    *((model_type, {"tie_word_embeddings": tied}) for model_type in MODEL_TYPES for tied in (True, False)),
    ("llama", {"attention_bias": True}),
    ("llama", {"mlp_bias": True, "num_key_value_heads": 1}),
    ("llama", {"head_dim": 24, "num_hidden_layers": 3, "intermediate_size": 100}),
    ("qwen3", {"head_dim": 32, "num_attention_heads": 6}),
]
LINEARS = {
    "llama": {"q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64)},
    "mlp": {"gate_proj": (96, 64), "up_proj": (96, 64), "down_proj": (64, 96)},
}


def config_of(toy_model: Callable[[str], Path], model_type: str, **changes: Any) -> dict[str, Any]:
    config = json.loads((toy_model(model_type) / "config.json").read_text())
    return normalised_config(config | changes, Path("toy"))


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_names_and_shapes_are_those_of_transformers_own_class(
    toy_model: Callable[[str], Path], model_type: str, changes: dict[str, Any]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = config_of(toy_model, model_type, **changes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        wanted.pop("lm_head.weight")
    assert architectures.get(model_type).torch_shapes(config) == wanted


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_mlx_names_are_the_parameters_of_mlx_lms_definition(
    toy_model: Callable[[str], Path], model_type: str, changes: dict[str, Any]
) -> None:
    from mlx.utils import tree_flatten

    from mlx_sentis.training.mlx_lm_models import models_module

    config = config_of(toy_model, model_type, **changes)
    definition = models_module(model_type)
    network = definition.Model(definition.ModelArgs.from_dict(config))
    found = {name: tuple(array.shape) for name, array in tree_flatten(network.parameters())}
    if config["tie_word_embeddings"]:
        found.pop("lm_head.weight", None)  # gemma3's definition makes one and drops it when weights are loaded
    table = architectures.get(model_type)
    assert {mlx: shape for _, _, mlx, shape in table.expand(config)} == found


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_names_go_to_mlx_and_back(toy_model: Callable[[str], Path], model_type: str) -> None:
    table, config = architectures.get(model_type), config_of(toy_model, model_type)
    there, back = table.mlx_from_torch(config), table.torch_from_mlx(config)
    assert len(there) == len(back) == len(table.torch_shapes(config))
    assert {name: back[mlx] for name, mlx in there.items()} == {name: name for name in table.torch_shapes(config)}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_linears_are_seven_a_layer_and_never_head_or_table(
    toy_model: Callable[[str], Path], model_type: str
) -> None:
    found = architectures.get(model_type).linear_modules(config_of(toy_model, model_type))
    wanted = {
        f"model.layers.{i}.{part}.{name}": shape
        for i in range(2)
        for part, linears in (("self_attn", LINEARS["llama"]), ("mlp", LINEARS["mlp"]))
        for name, shape in linears.items()
    }
    assert found == wanted


def test_an_unknown_architecture_lists_the_known_and_the_nearest() -> None:
    assert architectures.names() == sorted(MODEL_TYPES)
    with pytest.raises(StageError) as caught:
        architectures.get("gemma3")
    assert caught.value.message == "unknown architecture (config.json model_type) 'gemma3'"
    assert caught.value.hint == "did you mean gemma3_text? known: gemma3_text, llama, qwen2, qwen3"


def test_a_module_beside_the_tables_is_no_architecture() -> None:
    with pytest.raises(StageError):
        architectures.get("table")
