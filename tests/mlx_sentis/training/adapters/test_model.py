"""LoRA and DoRA: the formula, the identity at the start, which layers are chosen, and the interchange file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import FULL
from safetensors import safe_open

from mlx_sentis.demo.toy import MODEL_TYPES
from mlx_sentis.training import adapters
from weights_bridge.adapter_file import read_adapter
from weights_bridge.errors import StageError
from weights_bridge.files import written_whole
from weights_bridge.settings import AdapterSettings

Make = Callable[..., Any]
IDS = mx.array([[7, 300, 12, 45, 101, 9, 222, 17]])


def logits(model: Any) -> np.ndarray:
    return np.array(model.logits(model.hidden(model.embed(IDS))))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_an_adapter_before_training_equals_the_base(decoder: Make, model_type: str, kind: str) -> None:
    base, adapted = logits(decoder(model_type, None)), logits(decoder(model_type, kind, moved=False))
    np.testing.assert_allclose(adapted, base, rtol=0, atol=1e-6 * np.abs(base).max())


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_trained_adapter_does_not_equal_the_base(decoder: Make, model_type: str) -> None:
    assert np.abs(logits(decoder(model_type)) - logits(decoder(model_type, None))).max() > 0.1


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_a_layer_computes_the_formula_in_float64(decoder: Make, kind: str) -> None:
    layer = decoder("qwen2", kind).layers[1].self_attn.q_proj
    x = np.random.default_rng(1).standard_normal((5, 64))
    part = {name: np.array(layer[name], np.float64) for name in ("lora_A", "lora_B")}
    weight, bias = np.array(layer.linear.weight, np.float64), np.array(layer.linear.bias, np.float64)
    adapted = weight + 2.0 * part["lora_B"] @ part["lora_A"]  # alpha 8, rank 4
    if kind == "dora":
        adapted *= (np.array(layer.magnitude, np.float64) / np.linalg.norm(adapted, axis=1))[:, None]
    got = np.array(layer(mx.array(x.astype(np.float32))))
    np.testing.assert_allclose(got, x @ adapted.T + bias, rtol=0, atol=2e-5)


def test_the_norm_that_is_never_built_equals_the_built_one(decoder: Make) -> None:
    for layer in decoder("llama").layers:
        for linear in (layer.self_attn.q_proj, layer.mlp.down_proj):
            built = np.array(linear.linear.weight, np.float64) + linear.scale * (
                np.array(linear.lora_B, np.float64) @ np.array(linear.lora_A, np.float64)
            )
            np.testing.assert_allclose(np.array(linear.adapted_norm()), np.linalg.norm(built, axis=1), rtol=2e-6)


def test_no_gradient_flows_through_the_norm(decoder: Make) -> None:
    layer = decoder("llama").layers[0].self_attn.q_proj
    x = mx.array(np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32))
    factor = layer.magnitude / layer.adapted_norm()

    def attached(b: mx.array) -> mx.array:
        layer.lora_B = b
        return mx.sum(layer(x) ** 2)

    def by_hand(b: mx.array) -> mx.array:
        return mx.sum((factor * (x @ layer.linear.weight.T + layer.scale * ((x @ layer.lora_A.T) @ b.T))) ** 2)

    start = layer.lora_B
    got, wanted = np.array(mx.grad(attached)(start)), np.array(mx.grad(by_hand)(start))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(("rank", "alpha", "scale"), [(64, 64.0, 1.0), (8, 160.0, 20.0), (16, 8.0, 0.5)])
def test_the_scale_is_alpha_over_rank(decoder: Make, rank: int, alpha: float, scale: float) -> None:
    model = decoder("llama", "lora", rank=rank, alpha=alpha)
    assert model.layers[0].mlp.up_proj.scale == scale
    assert adapters.facts_of(AdapterSettings("lora", rank, alpha), []).scale == scale


def test_only_adapter_tensors_are_trained(decoder: Make) -> None:
    names = list(adapters.adapter_tensors(decoder("llama", "dora")))
    assert len(names) == 2 * 7 * 3
    assert {name.rpartition(".")[2] for name in names} == {"lora_A", "lora_B", "magnitude"}


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        (["all-linear"], 14),
        (["q_proj"], 2),
        (["q_proj", "v_proj"], 4),
        (["model.layers.1.*"], 7),
        (["*.mlp.*_proj", "up_proj"], 6),
        (["model.layers.0.self_attn.q_proj"], 1),
    ],
)
def test_targets_choose_modules_in_layer_order(decoder: Make, targets: list[str], count: int) -> None:
    model = decoder("llama", None)
    chosen = adapters.target_modules(model, targets)
    assert len(chosen) == count
    assert chosen == [n for n in model.folder.architecture.linear_modules(model.folder.config) if n in chosen]


def test_every_target_that_matches_nothing_is_refused(decoder: Make) -> None:
    with pytest.raises(StageError) as caught:
        adapters.target_modules(decoder("llama", None), ["q_proj", "q_porj", "lm_head", "model.layers.2.*"])
    assert caught.value.message.splitlines() == [
        "adapter.targets:",
        "  'lm_head' matches no Linear module",
        "  'model.layers.2.*' matches no Linear module",
        "  'q_porj' matches no Linear module",
    ]
    assert "q_proj" in caught.value.hint


def test_a_dora_row_without_length_is_refused_by_name(decoder: Make) -> None:
    model = decoder("llama", None)
    layer = model.layers[1].mlp.up_proj
    layer.weight = layer.weight * mx.array([[0.0]] + [[1.0]] * 95)
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.up_proj: row 0 is all zeros"):
        adapters.add_adapters(model, AdapterSettings("dora", 4), seed=0)


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


def save(path: Path, model: Any, kind: str = "dora") -> None:
    settings = AdapterSettings(kind, 4, 8.0)  # type: ignore[arg-type]
    names = adapters.target_modules(model, ["all-linear"])
    adapters.save_adapter(path, model, adapters.facts_of(settings, names))


def test_the_interchange_file_holds_torch_names_orientation_and_facts(decoder: Make, tmp_path: Path) -> None:
    model = decoder("llama")
    save(tmp_path / "a.safetensors", model)
    with safe_open(tmp_path / "a.safetensors", framework="np") as reader:
        q = "model.layers.0.self_attn.k_proj"
        assert reader.get_tensor(f"{q}.lora_A").shape == (4, 64)
        assert reader.get_tensor(f"{q}.lora_B").shape == (32, 4)
        assert reader.get_tensor(f"{q}.magnitude").shape == (32,)
        facts = json.loads(reader.metadata()["adapter"])
    assert facts | {"targets": []} == {
        "type": "dora",
        "rank": 4,
        "alpha": 8.0,
        "scale": 2.0,
        "dora_norm": "detached",
        "targets": [],
    }
    assert len(facts["targets"]) == 14


def test_an_adapter_survives_its_file_bit_for_bit(decoder: Make, tmp_path: Path) -> None:
    model, other = decoder("gemma3_text"), decoder("gemma3_text", moved=False)
    save(tmp_path / "a.safetensors", model)
    adapters.load_adapter(other, tmp_path / "a.safetensors")
    np.testing.assert_array_equal(logits(other), logits(model))
    flat = read_adapter(tmp_path / "a.safetensors").flat()
    for name, array in adapters.adapter_tensors(model).items():
        np.testing.assert_array_equal(flat[name], np.array(array))


def test_another_models_adapter_is_refused_with_every_difference(decoder: Make, tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", decoder("llama", "lora"), "lora")
    with pytest.raises(StageError, match=r"lora_A: found \(4, 64\), wanted \(8, 64\)"):
        adapters.load_adapter(decoder("llama", "lora", rank=8), tmp_path / "a.safetensors")
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.down_proj\.magnitude: missing"):
        adapters.load_adapter(decoder("llama", "dora"), tmp_path / "a.safetensors")
    with pytest.raises(StageError, match=r"down_proj\.lora_A: not in this model"):
        adapters.load_adapter(decoder("llama", "lora", targets=["q_proj"]), tmp_path / "a.safetensors")


def test_a_full_disk_leaves_no_adapter(decoder: Make, small_disk: Path) -> None:
    model = decoder("llama", "lora", rank=32)
    with pytest.raises(StageError, match=FULL), written_whole(small_disk / "a.safetensors") as beside:
        save(beside, model, "lora")
    assert list(small_disk.iterdir()) == []
