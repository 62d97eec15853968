"""Directories that are quantised already: loaded packed, trained on, equal to their dequantised selves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from helpers import call, edit_json, write_packed
from mlx.utils import tree_flatten

from mlx_sentis.training import adapters
from mlx_sentis.training.definitions import CausalLM, load_causal_lm
from mlx_sentis.training.quantised_folder import widen
from weights_bridge.errors import StageError
from weights_bridge.files import write_jsonl
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import AdapterSettings

Toy = Callable[[str], Path]
AFFINE = {"group_size": 32, "bits": 4, "mode": "affine"}
MIXED = AFFINE | {
    "model.layers.0.self_attn.v_proj": False,
    "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 6, "mode": "affine"},
}
FORMS: dict[str, dict[str, Any]] = {
    "4 bits": AFFINE,
    "8 bits": {"group_size": 64, "bits": 8},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "mixed": MIXED,
}


def write_dequantised(packed: Path, target: Path) -> Path:
    """Write the fp32 directory that a packed one stands for."""
    shutil.copytree(packed, target)
    network = load_causal_lm(open_model_folder(packed)).network
    weights = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
            half = {"scales": module.scales, "biases": module.get("biases")}
            weights[f"{name}.weight"] = mx.dequantize(
                module.weight, group_size=module.group_size, bits=module.bits, mode=module.mode, **half
            ).astype(mx.float32)
    plain = {n: a for n, a in tree_flatten(network.parameters()) if not n.endswith((".scales", ".biases"))}
    mx.save_safetensors(str(target / "model.safetensors"), plain | weights, metadata={"format": "mlx"})
    edit_json(target / "config.json", lambda config: config.pop("quantization"))
    return target


def logits_of(model: CausalLM) -> np.ndarray:
    ids = mx.array(np.random.default_rng(0).integers(6, 400, (2, 60)))
    return np.array(model.logits(model.hidden(model.embed(ids))))


CASES = [(model_type, form) for model_type in ("llama", "gemma3_text") for form in FORMS]
CASES += [(model_type, "4 bits") for model_type in ("phi3", "smollm3", "mistral", "qwen3")]


@pytest.mark.parametrize(("model_type", "form"), CASES)
def test_a_packed_model_is_its_dequantised_self(toy_model: Toy, tmp_path: Path, model_type: str, form: str) -> None:
    packed = write_packed(toy_model(model_type), tmp_path / "packed", FORMS[form])
    model = load_causal_lm(open_model_folder(packed))
    kinds = [type(module) for _, module in model.network.named_modules()]
    assert nn.QuantizedLinear in kinds and nn.QuantizedEmbedding in kinds
    wanted = logits_of(load_causal_lm(open_model_folder(write_dequantised(packed, tmp_path / "plain"))))
    assert np.abs(wanted - logits_of(load_causal_lm(open_model_folder(toy_model(model_type))))).max() > 1e-3
    np.testing.assert_allclose(logits_of(model), wanted, atol=2e-5)
    widen(model.network)
    assert not any(isinstance(m, nn.QuantizedLinear | nn.QuantizedEmbedding) for m in model.network.modules())
    np.testing.assert_allclose(logits_of(model), wanted, atol=2e-5)


@pytest.mark.parametrize("kind", ["lora", "dora", "bora"])
def test_an_adapter_on_packed_weights_starts_at_them_and_only_it_is_trained(
    toy_model: Toy, tmp_path: Path, kind: str
) -> None:
    packed = write_packed(toy_model("llama"), tmp_path / "packed", AFFINE)
    model = load_causal_lm(open_model_folder(packed))
    before = logits_of(model)
    settings = AdapterSettings(kind, rank=4, alpha=8.0, targets=["q_proj", "v_proj"])  # type: ignore[arg-type]
    names = adapters.add_adapters(model, settings, seed=0)
    np.testing.assert_allclose(logits_of(model), before, atol=2e-5)
    assert len(names) == 4
    packed_left = [name for name, m in model.network.named_modules() if isinstance(m, nn.QuantizedLinear)]
    assert all(".q_proj" in name or ".v_proj" in name for name in packed_left)
    assert len(packed_left) == 4  # they stay packed; what no target chose is wide on the CPU
    parts = {name.rpartition(".")[2] for name in adapters.adapter_tensors(model)}
    assert not parts & {"weight", "scales", "biases"}  # nothing of the frozen side


def prepared_for(model: Path, folder: Path) -> Path:
    rows = [{"prompt": f"Open gate number {i}", "completion": f"Gate {i} is open."} for i in range(24)]
    write_jsonl(folder / "rows.jsonl", rows)
    result = call("prepare", folder / "rows.jsonl", "--model", model, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return folder / "run"


def train(run: Path, *words: str) -> Any:
    small = ("train.epochs=2", "train.batch_rows=7", "adapter.rank=4", *words)
    flags = [flag for one in small for flag in ("--set", one)]
    return call("train", "--data", run, "--out", run, "--progress", "off", *flags)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("adapter.quantise=4",), "adapter.quantise=4:\n.*QuantizedLinear, wanted Linear"),
        (("train.full=true",), "quantised layers cannot be trained"),
    ],
)
def test_what_packed_weights_do_not_allow_is_refused(
    toy_model: Toy, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    import re

    run = prepared_for(write_packed(toy_model("llama"), tmp_path / "packed", AFFINE), tmp_path)
    result = train(run, *words)
    assert result.exit_code == 1, result.output
    assert re.search(said, result.stderr), result.stderr


def altered(packed: Path, change: Callable[[dict[str, Any]], object]) -> str:
    edit_json(packed / "config.json", change)
    with pytest.raises(StageError) as caught:
        load_causal_lm(open_model_folder(packed))
    return str(caught.value)


def test_other_bits_than_the_weights_were_packed_with_are_refused_by_tensor(toy_model: Toy, tmp_path: Path) -> None:
    packed = write_packed(toy_model("llama"), tmp_path / "packed", AFFINE)
    said = altered(packed, lambda config: config["quantization"].update(bits=8))
    assert "packed tensors do not fit:\n  model.embed_tokens.weight: found (" in said
    assert "bits and group_size in config.json" in said
    said = altered(packed, lambda config: config["quantization"].update(bits=7))
    assert "config.json: quantization:" in said
    said = altered(packed, lambda config: config.update(quantization={"bits": 4}))
    assert "wanted bits and group_size" in said


def test_packed_weights_of_another_tool_are_refused_by_its_name(toy_model: Toy, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "gptq"))
    said = altered(folder, lambda config: config.update(quantization_config={"quant_method": "gptq", "bits": 4}))
    assert "weights quantised by 'gptq', not by MLX" in said
