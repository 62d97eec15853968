"""Runs on directories that MLX has packed already: trained, merged into their dequantised weights, through gate A0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, write_packed

from weights_bridge.adapter_file import read_adapter
from weights_bridge.files import write_jsonl
from weights_bridge.merge import adapted_weight

Toy = Callable[[str], Path]
IDS = [[5, 17, 101, 33, 250, 7, 81]]
FORMS: dict[str, dict[str, Any]] = {
    "4 bits": {"group_size": 32, "bits": 4, "mode": "affine"},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "mixed": {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "model.layers.0.self_attn.v_proj": False,
        "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 6, "mode": "affine"},
    },
}
CASES = [
    ("llama", "4 bits"),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gemma3_text", "mxfp4"), ("phi3", "4 bits"))),
    pytest.param("llama", "mixed", marks=pytest.mark.slow),
]


def trained_on(model: Path, folder: Path) -> Path:
    """Return a run whose adapter was trained on a model, by the public commands."""
    rows = [{"prompt": f"Open gate number {i}", "completion": f"Gate {i} is open."} for i in range(8)]
    rows += [{"prompt": "Tell me " + "of the old mill and the lamp " * 6, "completion": "It stands by the forge."}]
    write_jsonl(folder / "rows.jsonl", rows * 2)
    run = folder / "run"
    done = call("prepare", folder / "rows.jsonl", "--model", model, "--out", run)
    assert done.exit_code == 0, done.output
    settings = ("train.epochs=2", "train.batch_rows=4", "adapter.rank=4", "train.learning_rate=1e-2")
    flags = [word for one in settings for word in ("--set", one)]
    done = call("train", "--data", run, "--out", run, "--progress", "off", *flags)
    assert done.exit_code == 0, done.output
    return run


def dequantised_by_mlx(packed: Path, module: str) -> Any:
    """Return a weight as MLX computes it in fp32 from the stored scales, [out, in]."""
    import mlx.core as mx

    parts: dict[str, mx.array] = mx.load(str(packed / "model.safetensors"))  # pyright: ignore
    if f"{module}.scales" not in parts:
        return np.array(parts[f"{module}.weight"].astype(mx.float32))
    settings = json.loads((packed / "config.json").read_text())["quantization"]
    own = settings.get(module) or settings
    how = {"group_size": own["group_size"], "bits": own["bits"], "mode": own["mode"]}
    scales, biases = parts[f"{module}.scales"], parts.get(f"{module}.biases")
    if own["mode"] == "affine":
        assert scales.dtype == mx.bfloat16 and biases is not None
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    return np.array(mx.dequantize(parts[f"{module}.weight"], scales, biases, **how).astype(mx.float32))


@pytest.mark.usefixtures("children_here")
@pytest.mark.parametrize(("model_type", "form"), CASES)
def test_a_run_on_packed_weights_is_merged_into_what_it_was_trained_on_and_passes_gate_a0(
    toy_model: Toy, tmp_path: Path, model_type: str, form: str
) -> None:
    import mlx.core as mx
    import torch
    from mlx_lm.utils import load_model
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM

    packed = write_packed(toy_model(model_type), tmp_path / "packed", FORMS[form])
    run = trained_on(packed, tmp_path)
    done = call("bridge", run)
    assert done.exit_code == 0, done.output
    assert "the base is packed" in done.stderr and "keep 100.00% of the adapter's effect" in done.stderr
    done = call("bridge", run, "--to", "peft", "--out", tmp_path / "peft")
    assert done.exit_code == 0 and f"`mlx-sentis bridge {packed} --to torch --out NEW`" in done.stderr, done.output
    merged = load_file(run / "merged" / "model.safetensors")
    adapter = read_adapter(run / "checkpoints" / "best" / "adapter.safetensors")
    for module, parts in adapter.modules.items():
        exact = adapted_weight(dequantised_by_mlx(packed, module), parts, adapter.kind, adapter.scale_of(module))
        np.testing.assert_array_equal(merged[f"{module}.weight"], exact.astype(np.float32))
    table = dequantised_by_mlx(packed, "model.embed_tokens")
    np.testing.assert_array_equal(merged["model.embed_tokens.weight"], table)
    assert {array.dtype for array in merged.values()} == {np.dtype("f4")}
    config = json.loads((run / "merged" / "config.json").read_text())
    assert not {"quantization", "quantization_config"} & config.keys()
    model = AutoModelForCausalLM.from_pretrained(run / "merged", dtype=torch.float32)
    with torch.no_grad():
        wanted = model.eval()(torch.tensor(IDS)).logits.numpy()
    theirs, _ = load_model(run / "merged")
    limit = 2e-5 if model_type != "gemma3_text" else 5e-3  # mlx-lm multiplies Gemma's embeddings by bf16(√H)
    assert np.abs(np.array(theirs(mx.array(IDS))) - wanted).max() < limit * np.abs(wanted).max()
    assert call("parity", run, "--edge", "a0").exit_code == 0


@pytest.mark.usefixtures("children_here")
def test_a_scale_that_was_rounded_on_the_way_misses_gate_a0(
    toy_model: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base dequantised in bf16, as `mx.dequantize` gives it, is not the one that was trained on."""
    from weights_bridge.model_folder import ModelFolder

    packed = write_packed(toy_model("llama"), tmp_path / "packed", FORMS["4 bits"])
    run = trained_on(packed, tmp_path)
    plain = ModelFolder.mlx_tensor
    with monkeypatch.context() as patch:
        patch.setattr(ModelFolder, "mlx_tensor", lambda self, name, *, wide=False: plain(self, name))
        done = call("bridge", run)
    assert done.exit_code == 3 and "forward" in done.stderr, done.output
    assert call("bridge", run).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["packed llama", "phi3", "smollm3", "gemma2"])
def test_a_whole_run_passes_every_gate(toy_model: Toy, small_data: Path, tmp_path: Path, model_type: str) -> None:
    model = toy_model(model_type.split()[-1])
    if model_type.startswith("packed"):
        model = write_packed(model, tmp_path / "packed", FORMS["4 bits"])
    settings = [f"model.name={model}", f"data.source={small_data}", "train.epochs=2", "train.batch_rows=8"]
    flags = [word for one in settings for word in ("--set", one)]
    done = call("run", "--out", tmp_path / "run", "--json", "--progress", "off", *flags)
    assert done.exit_code == 0, done.output[-2000:]
    for report in ("a-base", "a0", "a"):
        assert json.loads((tmp_path / "run" / "parity" / f"{report}.json").read_text())["passed"], report
