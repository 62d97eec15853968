"""Directories from torch to MLX and back, packed ones among them, and what of an adapter a rounding leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import call, edit_json, write_packed
from safetensors.numpy import load_file, save_file

from weights_bridge.adapter_file import read_adapter
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.merge import Effect, adapted_weight, merged_tensors, require_kept, rounded_once, write_merged
from weights_bridge.model_folder import open_base, open_model_folder
from weights_bridge.model_writer import DTYPES, convert_folder, origin_of
from weights_bridge.quantisation import Packing, dequantised
from weights_bridge.weight_files import INDEX, open_weights

Make = Callable[..., Path]
Q = "model.layers.0.self_attn.q_proj"
BF16 = np.dtype(ml_dtypes.bfloat16)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: file.tensor(name).tobytes() for name, file in open_weights(folder).items()}


def half_copy(folder: Path, out: Path, dtype: Any) -> Path:
    """Return a copy of a directory whose weights are of another type."""
    shutil.copytree(folder, out)
    save_file({n: a.astype(dtype) for n, a in load_file(out / "model.safetensors").items()}, out / "model.safetensors")
    return out


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("model_type", ["llama", "phi3", "gemma3_text"])
def test_a_directory_goes_to_mlx_and_back_bit_by_bit(
    toy_model: Callable[[str], Path], tmp_path: Path, model_type: str, dtype: Any
) -> None:
    source = half_copy(toy_model(model_type), tmp_path / "source", dtype)
    files = convert_folder(open_model_folder(source), "mlx", tmp_path / "mlx", shard_bytes=50_000)
    assert len(files) > 2 and (tmp_path / "mlx" / INDEX).is_file()
    assert (origin_of(source), origin_of(tmp_path / "mlx")) == ("torch", "mlx")
    mlx = open_model_folder(tmp_path / "mlx", origin="mlx")
    mlx.check_tensors(values=True)
    convert_folder(mlx, "torch", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(source)
    assert (tmp_path / "back" / "chat_template.jinja").read_bytes() == (source / "chat_template.jinja").read_bytes()


def test_a_second_conversion_is_the_identity(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    convert_folder(open_model_folder(toy_model("llama")), "mlx", tmp_path / "once")
    convert_folder(open_model_folder(tmp_path / "once", origin="mlx"), "mlx", tmp_path / "twice")
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


@pytest.mark.slow
def test_whispers_convolutions_are_turned_once(tmp_path: Path) -> None:
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    sizes |= {"num_mel_bins": 5, "vocab_size": 40, "max_source_positions": 12, "max_target_positions": 9}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 0}
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes, bos_token_id=1, eos_token_id=2))  # type: ignore[arg-type]
    model.save_pretrained(tmp_path / "torch")
    source = open_model_folder(tmp_path / "torch")
    convert_folder(source, "mlx", tmp_path / "mlx")
    turned = open_weights(tmp_path / "mlx")["encoder.conv1.weight"].tensor("encoder.conv1.weight")
    np.testing.assert_array_equal(turned, source.tensor("model.encoder.conv1.weight").transpose(0, 2, 1))
    done = call("bridge", tmp_path / "mlx", "--to", "torch", "--out", tmp_path / "back")
    assert done.exit_code == 0, done.output
    assert contents(tmp_path / "back") == contents(tmp_path / "torch")


def packed_copy(source: Path, out: Path, **how: Any) -> Path:
    """Return a directory as mlx-lm packs it: every Linear and the embedding."""
    import mlx.core as mx

    shutil.copytree(source, out)
    tensors: dict[str, Any] = {}
    for name, array in load_file(source / "model.safetensors").items():
        if array.ndim == 1:
            tensors[name] = mx.array(array)
            continue
        words, *parts = mx.quantize(mx.array(array), **how)
        tensors[name] = words
        tensors |= {f"{name.removesuffix('weight')}{p}": a for p, a in zip(("scales", "biases"), parts, strict=False)}
    mx.save_safetensors(str(out / "model.safetensors"), tensors, {"format": "mlx"})
    settings = {"group_size": how["group_size"], "bits": how["bits"], "mode": how.get("mode", "affine")}
    edit_json(out / "config.json", lambda c: c.update(quantization=settings, quantization_config=settings))
    return out


@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8"])
def test_a_packed_directory_becomes_plain_torch_weights_that_both_libraries_load(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path, mode: str
) -> None:
    import mlx.core as mx
    import torch
    from mlx_lm.utils import load_model
    from transformers import AutoModelForCausalLM

    how = {"group_size": 32, "bits": 8 if mode == "mxfp8" else 4, "mode": mode}
    packed = packed_copy(toy_model("llama"), tmp_path / "packed", **how)
    with pytest.raises(StageError, match="quantization and quantization_config: not plain torch weights"):
        open_model_folder(packed).check_tensors()
    base = open_model_folder(packed, origin="mlx")
    adapter = read_adapter(made_adapter("llama", "lora", 4, 8.0))
    write_merged(base, adapter, tmp_path / "merged", [2])
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert not {"quantization", "quantization_config"} & config.keys()
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", output_loading_info=True)
    assert not any(info.values()), info
    parts = dict(mx.load(str(packed / "model.safetensors")).items())  # type: ignore[union-attr]
    wanted = mx.dequantize(parts[f"{Q}.weight"], parts[f"{Q}.scales"], parts.get(f"{Q}.biases"), **how)
    module = adapter.modules[Q]
    exact = adapted_weight(np.array(wanted.astype(mx.float32)), module, adapter.kind, 2.0)
    np.testing.assert_array_equal(model.state_dict()[f"{Q}.weight"].numpy(), exact.astype(np.float32))
    ids = [[5, 17, 101, 33, 250, 7, 81]]
    theirs, _ = load_model(tmp_path / "merged")
    with torch.no_grad():
        logits = model(torch.tensor(ids)).logits.numpy()
    assert np.abs(np.array(theirs(mx.array(ids))) - logits).max() < 2e-5 * np.abs(logits).max()


def test_half_scales_are_widened_for_a_merge_and_kept_for_a_conversion(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """The trainer computes scale · integer + bias in fp32, `mx.dequantize` in the scales' type."""
    import mlx.core as mx

    how: dict[str, Any] = {"group_size": 32, "bits": 4, "mode": "affine"}
    base = open_base(write_packed(toy_model("llama"), tmp_path / "packed", how))
    parts: dict[str, mx.array] = mx.load(str(base.path / "model.safetensors"))  # type: ignore[assignment]
    words, *halves = (parts[f"{Q}.{part}"] for part in ("weight", "scales", "biases"))
    assert halves[0].dtype == mx.bfloat16
    wide = mx.dequantize(words, *(part.astype(mx.float32) for part in halves), **how)
    name = f"{Q}.weight"
    np.testing.assert_array_equal(dict(base.tensors())[name], np.array(wide))
    half = np.array(mx.dequantize(words, *halves, **how).view(mx.uint16))
    np.testing.assert_array_equal(dict(base.tensors(as_fp32=False))[name].view(np.uint16), half)
    assert (half.view(BF16).astype(np.float32) != np.array(wide)).any()


def test_faults_of_a_packed_directory_are_named(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    packed = packed_copy(toy_model("llama"), tmp_path / "packed", group_size=32, bits=4)
    tensors = load_file(packed / "model.safetensors")
    del tensors[f"{Q}.biases"]
    tensors["model.norm.scales"] = np.ones(2, np.float32)
    save_file(tensors, packed / "model.safetensors", {"format": "mlx"})
    with pytest.raises(StageError) as caught:
        open_model_folder(packed, origin="mlx").check_tensors()
    assert f"{Q}.biases: missing, wanted (64, 2)" in caught.value.message
    assert "model.norm.weight: found (64,), wanted (8,)" in caught.value.message


# --- how much of an adapter is kept


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("fp32", 0.9999, 1.0), ("fp16", 0.9, 0.9999), ("bf16", 0.5, 0.99)]
)
def test_what_a_rounding_keeps_is_measured(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path, dtype: str, least: float, most: float
) -> None:
    base = open_model_folder(half_copy(toy_model("llama"), tmp_path / "base", BF16))
    adapter = read_adapter(made_adapter("llama", "lora", 4, 0.4))
    effect = write_merged(base, adapter, tmp_path / "merged", [2], dtype=dtype)
    assert least < effect.kept <= most
    assert effect.worst[0] <= effect.kept
    merged = open_weights(tmp_path / "merged")
    assert {file.entries[name].dtype for name, file in merged.items()} == {DTYPES[dtype]}
    by_hand, whole = 0.0, 0.0
    for module, parts in adapter.modules.items():
        weight = base.tensor(f"{module}.weight")
        exact = adapted_weight(weight, parts, adapter.kind, 0.1)
        stored = merged[f"{module}.weight"].tensor(f"{module}.weight").astype(np.float64)
        by_hand += np.square(stored - exact).sum()
        whole += np.square(exact - weight).sum()
    assert effect.kept == pytest.approx(1 - np.sqrt(by_hand / whole), abs=1e-9)


def test_a_small_adapter_that_bf16_swallows_is_refused(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    base = open_model_folder(half_copy(toy_model("llama"), tmp_path / "base", BF16))
    adapter = read_adapter(made_adapter("llama", "lora", 4, 0.004))
    with pytest.raises(BudgetMissedError, match=r"bf16 keeps \d.*of the adapter's effect") as caught:
        write_merged(base, adapter, tmp_path / "merged", [2], dtype="bf16")
    assert caught.value.exit_code == 3 and not (tmp_path / "merged").exists()
    assert write_merged(base, adapter, tmp_path / "merged", [2]).kept > 0.999


def test_packing_the_merged_weights_again_loses_a_small_adapter(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    """What a fuse into a 4-bit model does elsewhere: the base's own grid swallows the change."""
    import mlx.core as mx

    base = open_model_folder(packed_copy(toy_model("llama"), tmp_path / "p", group_size=32, bits=4), origin="mlx")
    adapter = read_adapter(made_adapter("llama", "lora", 4, 0.04))
    weights, packing, effect = dict(base.tensors()), Packing(32, 4, "affine"), Effect()
    for module, parts in adapter.modules.items():
        exact = adapted_weight(weights[f"{module}.weight"], parts, adapter.kind, 0.01)
        again = [np.array(part) for part in mx.quantize(mx.array(exact.astype(np.float32)), group_size=32, bits=4)]
        effect.add(module, weights[f"{module}.weight"], exact, dequantised(*again, packing))
    assert effect.kept < 0.1
    with pytest.raises(BudgetMissedError, match="4 bits keeps"):
        require_kept(effect, "4 bits")
    plain = Effect()
    assert dict(merged_tensors(base, adapter, effect=plain)).keys() == weights.keys()
    assert plain.kept > 0.999


def test_rounding_to_bf16_happens_once() -> None:
    tie = 1 + 2.0**-8
    values = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, 0.0, 2.0**-140])
    assert rounded_once(values, BF16).astype(float).tolist()[:5] == [1.0, 1 + 2.0**-7, 1.0, -1 - 2.0**-7, 0.0]
    assert values.astype(np.float32).astype(BF16).astype(float)[1] == 1.0  # by way of fp32 it would be lost
    many = np.random.default_rng(0).standard_normal(10_000)
    spacing = 2.0 ** (np.floor(np.log2(np.abs(many))) - 7)
    assert (np.abs(rounded_once(many, BF16).astype(float) - many) <= spacing / 2).all()


# --- the command


@pytest.mark.slow
def test_the_command_converts_a_model_both_ways(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    there = call("bridge", toy_model("llama"), "--to", "mlx", "--out", tmp_path / "mlx", "--json")
    assert there.exit_code == 0, there.output
    assert json.loads(there.stdout) | {"files": []} == {
        "schema": "mlx-sentis/bridge/1",
        "from": "torch",
        "to": "mlx",
        "out": str(tmp_path / "mlx"),
        "files": [],
        "tensors": 20,
        "left_out": {},
        "opened_by": "mlx-lm",
        "not_opened": "",
    }
    back = call("bridge", tmp_path / "mlx", "--to", "torch", "--out", tmp_path / "back")
    assert back.exit_code == 0 and "transformers opened it" in back.stdout, back.output
    assert contents(tmp_path / "back") == contents(toy_model("llama"))
    assert call("bridge", toy_model("llama"), "--to", "mlx").exit_code == 2
    assert call("bridge", toy_model("llama"), "--to", "peft", "--out", tmp_path / "x").exit_code == 2


def test_pickled_weights_are_converted_only_where_it_is_allowed(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import torch

    source = Path(shutil.copytree(toy_model("llama"), tmp_path / "source"))
    tensors = load_file(source / "model.safetensors")
    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    words = ("bridge", source, "--to", "torch", "--out", tmp_path / "out")
    refused = call(*words)
    assert refused.exit_code == 1 and "--allow-pickle" in refused.output
    done = call(*words, "--allow-pickle")
    assert done.exit_code == 0, done.output
    assert contents(tmp_path / "out") == contents(toy_model("llama"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
