"""Adapters on toy decoders: the identity at the start, which layers are trained, ranks by pattern, all weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlx_sentis.demo.toy import MODEL_TYPES
from mlx_sentis.training import adapters
from mlx_sentis.training.activations import checkpoint_activations
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.errors import StageError
from weights_bridge.settings import AdapterSettings

Make = Callable[..., Any]
IDS = mx.array([[7, 300, 12, 45, 101, 9, 222, 17]])


def logits(model: Any) -> np.ndarray:
    return np.array(model.logits(model.hidden(model.embed(IDS))))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_before_training_equals_the_base(decoder: Make, model_type: str, kind: str) -> None:
    base, adapted = logits(decoder(model_type, None)), logits(decoder(model_type, kind, moved=False))
    np.testing.assert_allclose(adapted, base, rtol=0, atol=1e-6 * np.abs(base).max())


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_trained_adapter_does_not_equal_the_base(decoder: Make, model_type: str) -> None:
    assert np.abs(logits(decoder(model_type)) - logits(decoder(model_type, None))).max() > 0.1


@pytest.mark.parametrize(("rank", "alpha", "scale"), [(64, 64.0, 1.0), (8, 160.0, 20.0), (16, 8.0, 0.5)])
def test_the_scale_is_alpha_over_rank(decoder: Make, rank: int, alpha: float, scale: float) -> None:
    model = decoder("llama", "lora", rank=rank, alpha=alpha)
    assert model.layers[0].mlp.up_proj.scale == scale
    assert adapters.facts_of(AdapterSettings("lora", rank, alpha), []).scale == scale


def test_rslora_divides_by_the_root_of_the_rank(decoder: Make) -> None:
    assert decoder("llama", "rslora", rank=16, alpha=8.0).layers[0].mlp.up_proj.scale == 2.0


def test_a_pattern_gives_its_modules_their_own_rank_and_alpha(decoder: Make) -> None:
    table = {"rank_pattern": {"layers.[0-0].mlp.*": 2}, "alpha_pattern": {"q_proj": 4.0}}
    layers = decoder("llama", "lora", rank=4, alpha=8.0, **table).layers
    assert layers[0].mlp.up_proj.lora_A.shape == (2, 64) and layers[0].mlp.up_proj.scale == 4.0
    assert layers[1].mlp.up_proj.lora_A.shape == (4, 64) and layers[1].mlp.up_proj.scale == 2.0
    assert layers[1].self_attn.q_proj.scale == 1.0


def test_a_rank_above_the_number_of_singular_vectors_is_refused_by_name(decoder: Make) -> None:
    with pytest.raises(StageError, match=r"model\.layers\.1\.self_attn\.v_proj: rank 33, but it has 32 singular"):
        decoder("llama", "lora-xs", rank=33)


def test_a_rank_beyond_the_longer_side_is_refused_by_name_before_it_is_allocated(decoder: Make) -> None:
    with pytest.raises(StageError, match=r"q_proj: rank 1000000000000, wanted at most \d+, its longer side"):
        decoder("llama", "lora", rank=10**12)


def test_a_second_adapter_on_one_layer_is_refused(decoder: Make) -> None:
    model = decoder("llama", "lora")
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.up_proj: has an adapter already"):
        adapters.add_adapters(model, AdapterSettings("lora", 4), seed=0)


def test_all_weights_are_trained_under_their_torch_names(decoder: Make) -> None:
    model = decoder("gemma3_text", None)
    names = adapters.train_everything(model)
    assert sorted(names) == sorted(model.folder.architecture.torch_shapes(model.folder.config))


def test_quantised_weights_cannot_all_be_trained(decoder: Make) -> None:
    model = decoder("llama", None)
    nn.quantize(model.network.model.layers[1], group_size=32)
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.down_proj"):
        adapters.train_everything(model)


@pytest.mark.parametrize("kind", KINDS)
def test_only_adapter_tensors_are_trained(decoder: Make, kind: str) -> None:
    names = list(adapters.adapter_tensors(decoder("llama", kind)))
    wanted = KINDS[kind].parts - {"U", "V"}  # the fixed bases stay as they are
    assert len(names) == 2 * 7 * len(wanted)
    assert {name.rpartition(".")[2] for name in names} == wanted


def test_a_target_or_an_exclude_that_matches_nothing_is_refused_before_anything_is_wrapped(decoder: Make) -> None:
    model = decoder("llama", None)
    settings = AdapterSettings("lora", 4, targets=["self_attn.q_proj", "ff.0"], exclude=["layers.[0-5].mlp.*"])
    with pytest.raises(StageError) as caught:
        adapters.add_adapters(model, settings, seed=0)
    assert "targets: 'ff.0' matches no module" in caught.value.message
    assert "'layers.[0-5].mlp.*' goes beyond the model, nothing matches layers.5.mlp.*" in caught.value.message
    assert not list(adapters.adapted_modules(model.network))


def test_a_dora_row_without_length_is_refused_by_name(decoder: Make) -> None:
    model = decoder("llama", None)
    layer = model.layers[1].mlp.up_proj
    layer.weight = layer.weight * mx.array([[0.0]] + [[1.0]] * 95)
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.up_proj: row 0 is all zeros"):
        adapters.add_adapters(model, AdapterSettings("dora", 4), seed=0)


def test_a_column_without_length_is_refused_by_name(decoder: Make) -> None:
    model = decoder("llama", None)
    layer = model.layers[0].mlp.up_proj
    layer.weight = layer.weight * mx.array([1.0] * 63 + [0.0])
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.up_proj: column 63 is all zeros"):
        adapters.add_adapters(model, AdapterSettings("dora-cols", 4), seed=0)


def test_one_seed_gives_one_start_and_another_seed_another(decoder: Make) -> None:
    starts = []
    for seed in (0, 0, 1):
        model = decoder("llama", None)
        adapters.add_adapters(model, AdapterSettings("lora", 4), seed)
        starts.append({name: np.array(array) for name, array in adapters.adapter_tensors(model).items()})
    for name, array in starts[0].items():
        np.testing.assert_array_equal(array, starts[1][name])
        assert name.endswith("lora_B") or np.abs(array - starts[2][name]).max() > 0
    a = np.concatenate([array.ravel() for name, array in starts[0].items() if "q_proj.lora_A" in name])
    assert np.abs(a).max() <= 1 / 8  # 1/√64
    assert a.std() == pytest.approx(1 / 8 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("form", ["2", "3", "4", "5", "6", "8", "mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("kind", ["lora", "dora", "bora"])
def test_an_adapter_on_quantised_weights_starts_at_the_quantised_model(decoder: Make, kind: str, form: str) -> None:
    quantised = decoder("llama", None)
    adapters.quantise(quantised.network, adapters.target_modules(quantised, ["all-linear"]), form)
    adapted = decoder("llama", kind, moved=False, quantise=form)
    wanted = logits(quantised)
    np.testing.assert_allclose(logits(adapted), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    assert np.abs(wanted - logits(decoder("llama", None))).max() > 1e-3
    assert {name.rpartition(".")[2] for name in adapters.adapter_tensors(adapted)} == KINDS[kind].parts


def test_only_the_adapted_layers_are_quantised(decoder: Make) -> None:
    model = decoder("llama", "lora", targets=["layers.[0-0].mlp.*"], quantise="4")
    quantised = [name for name, module in model.network.named_modules() if isinstance(module, nn.QuantizedLinear)]
    assert sorted(quantised) == [f"model.layers.0.mlp.{part}_proj.base" for part in ("down", "gate", "up")]


def test_a_width_that_no_group_divides_is_refused_by_name() -> None:
    network = nn.Sequential(nn.Linear(48, 8), nn.Linear(64, 8), nn.Conv1d(32, 8, 1))
    with pytest.raises(StageError) as caught:
        adapters.quantise(network, ["layers.0", "layers.1", "layers.2"], "4")
    assert caught.value.message.splitlines()[1:] == [
        "  layers.0: width 48, wanted a multiple of 32",
        "  layers.2: Conv1d, wanted Linear",
    ]


@pytest.mark.parametrize(
    "settings", [{"kind": "bora", "norm": "attached"}, {"kind": "dora", "quantise": "4"}, {"kind": "dora-cols-xs"}]
)
def test_layers_that_are_computed_again_give_the_same_gradients(decoder: Make, settings: dict[str, str]) -> None:
    found = []
    for again in (False, True):
        model = decoder("llama", **settings)
        if again:
            checkpoint_activations(model)
        loss = nn.value_and_grad(model.network, lambda ids, m=model: mx.sum(m.hidden(m.embed(ids)) ** 2))
        found.append({name: np.array(array) for name, array in tree_flatten(loss(IDS)[1])})
    assert found[0].keys() == found[1].keys() == adapters.adapter_tensors(model).keys()
    for name, wanted in found[0].items():
        np.testing.assert_allclose(found[1][name], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(("model_type", "why"), [("llama", "tied to the embeddings"), ("qwen3", "only the layers are")])
def test_the_head_is_no_target_and_is_told_why(decoder: Make, model_type: str, why: str) -> None:
    for target in ("lm_head", "model.lm_head"):
        with pytest.raises(StageError, match=rf"lm_head: .*{why}"):
            adapters.target_modules(decoder(model_type, None), ["q_proj", target])
    assert adapters.target_modules(decoder(model_type, None), ["q_proj"])
