"""The interchange file from MLX's side, and whose file is refused."""

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
from safetensors.numpy import load_file, save_file

from mlx_sentis.training import adapters
from weights_bridge.adapter_file import read_adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of, written_whole
from weights_bridge.merge import merged_tensors
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

Make = Callable[..., Any]
IDS = mx.array([[7, 300, 12, 45, 101, 9, 222, 17]])
Q = "model.layers.0.self_attn.q_proj"


def logits(model: Any) -> np.ndarray:
    return np.array(model.logits(model.hidden(model.embed(IDS))))


def save(path: Path, model: Any, kind: str = "dora", **settings: Any) -> Path:
    chosen = AdapterSettings(kind, 4, 8.0, **settings)  # type: ignore[arg-type]
    names = adapters.target_modules(model, ["all-linear"])
    adapters.save_adapter(path, model, adapters.facts_of(chosen, names, adapters.base_hashes(model.folder)))
    return path


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
        "norm": "detached",
        "dropout": 0.0,
        "targets": [],
        "ranks": {},
        "alphas": {},
        "base": {"model.safetensors": sha256_of(model.folder.path / "model.safetensors")},
        "quantised": "no",
    }
    assert len(facts["targets"]) == 14


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_its_file_bit_for_bit(decoder: Make, tmp_path: Path, kind: str) -> None:
    settings = {"rank_pattern": {"mlp.up_proj": 2}, "alpha_pattern": {"layers.1.*": 3.0}, "norm": "attached"}
    model = decoder("gemma3_text", kind, **settings)
    path = save(tmp_path / "a.safetensors", model, kind, **settings)
    other = decoder("gemma3_text", None)
    facts = adapters.put_on(other, path)
    assert (facts.type, facts.norm, facts.ranks["model.layers.0.mlp.up_proj"]) == (kind, "attached", 2)
    np.testing.assert_array_equal(logits(other), logits(model))
    flat = read_adapter(path).flat()
    for name, array in adapters.file_tensors(model).items():
        np.testing.assert_array_equal(flat[name], np.array(array))


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_model_answers_as_the_adapted_one(decoder: Make, tmp_path: Path, kind: str) -> None:
    settings = {"rank_pattern": {"mlp.up_proj": 2}, "alpha_pattern": {"layers.1.*": 3.0}}
    model = decoder("qwen2", kind, **settings)
    adapter = read_adapter(save(tmp_path / "a.safetensors", model, kind, **settings))
    merged = decoder("qwen2", None)
    base = logits(merged)
    merged.network.load_weights([(name, mx.array(a)) for name, a in merged_tensors(merged.folder, adapter)])
    wanted = logits(model)
    assert np.abs(wanted - base).max() > 0.01 * np.abs(base).max()
    np.testing.assert_allclose(logits(merged), wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_a_full_fine_tune_is_written_read_and_merged(decoder: Make, tmp_path: Path) -> None:
    model = decoder("gemma3_text", None)
    facts = adapters.prepare_training(model, Settings(train=TrainSettings(full=True)))
    assert facts.name == "all weights"
    moved = [(name, array + 0.01) for name, array in adapters.adapter_tensors(model).items()]
    model.network.load_weights(moved, strict=False)
    adapters.save_adapter(tmp_path / "a.safetensors", model, facts)
    other = decoder("gemma3_text", None)
    before = logits(other)
    adapters.put_on(other, tmp_path / "a.safetensors")
    np.testing.assert_array_equal(logits(other), logits(model))
    assert np.abs(logits(other) - before).max() > 0.01
    names = model.folder.architecture.mlx_from_torch(model.folder.config)
    trained = adapters.adapter_tensors(model)
    for name, array in merged_tensors(model.folder, read_adapter(tmp_path / "a.safetensors")):
        np.testing.assert_array_equal(array, np.array(trained[names[name]]))


def test_another_models_adapter_is_refused_with_every_difference(decoder: Make, tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", decoder("llama", "lora"), "lora")
    with pytest.raises(StageError, match=r"lora_A: found \(4, 64\), wanted \(8, 64\)"):
        adapters.load_adapter(decoder("llama", "lora", rank=8), tmp_path / "a.safetensors")
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.down_proj\.magnitude: missing"):
        adapters.load_adapter(decoder("llama", "dora"), tmp_path / "a.safetensors")
    with pytest.raises(StageError, match=r"down_proj\.lora_A: not in this model"):
        adapters.load_adapter(decoder("llama", "lora", targets=["q_proj"]), tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("scheme", "spelled"),
    [
        ("PEFT", "base_model.model.{module}.{part}.weight"),
        ("kohya", "lora_te1_{flat}.lora_{direction}.weight"),
        ("diffusers", "transformer.{module}.lora.{direction}.weight"),
        ("mlx-lm", "{module}.{lower}"),
        ("stable-audio-3 parametrizations", "model.{module}.parametrizations.weight.0.{part}"),
        ("mlx-sentis", "language_model.{module}.{part}"),
    ],
)
def test_an_adapter_with_foreign_names_is_refused_and_its_naming_named(
    decoder: Make, tmp_path: Path, scheme: str, spelled: str
) -> None:
    model = decoder("llama", "lora")
    tensors = load_file(save(tmp_path / "ours.safetensors", model, "lora"))
    foreign = {}
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        words = {"flat": module.replace(".", "_"), "direction": "down" if part == "lora_A" else "up"}
        foreign[spelled.format(module=module, part=part, lower=part.lower(), **words)] = array
    save_file(foreign, tmp_path / "theirs.safetensors")
    before = logits(model)
    with pytest.raises(StageError, match=rf"0 of 28 keys match; nearest naming scheme: {scheme}"):
        adapters.load_adapter(model, tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(logits(model), before)


def test_a_full_disk_leaves_no_adapter(decoder: Make, small_disk: Path) -> None:
    model = decoder("llama", "lora", rank=32)
    with pytest.raises(StageError, match=FULL), written_whole(small_disk / "a.safetensors") as beside:
        save(beside, model, "lora")
    assert list(small_disk.iterdir()) == []
