"""The merged model in fewer bits: what is written, who opens it, and what of the adapter is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import write_packed
from safetensors.numpy import load_file

from parity import run_commands
from weights_bridge.adapter_file import Adapter, read_adapter
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.merge import merged_tensors
from weights_bridge.merged_copy import PRECISIONS, PackedEffect, main_directions, write_merged_copy
from weights_bridge.model_folder import ModelFolder, open_base, open_model_folder

Make = Callable[..., Path]
Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
BF16 = np.dtype(ml_dtypes.bfloat16)
IDS = [[5, 17, 101, 33, 250, 7, 81]]


@pytest.fixture
def base(toy_model: Callable[[str], Path]) -> ModelFolder:
    return open_model_folder(toy_model("llama"))


def mlx_lm_logits(folder: Path) -> Any:
    import mlx.core as mx
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)
    return np.array(model(mx.array(IDS)).astype(mx.float32))


def test_the_commands_precisions_are_those_that_can_be_written() -> None:
    assert run_commands.PRECISIONS == PRECISIONS


@pytest.mark.parametrize(("precision", "bits"), [("8bit", 8), ("4bit", 4)])
def test_mlx_lm_opens_a_packed_copy_and_it_holds_the_merged_weights_as_mlx_packs_them(
    base: ModelFolder, made_adapter: Make, tmp_path: Path, precision: str, bits: int
) -> None:
    import mlx.core as mx

    adapter = read_adapter(made_adapter("llama", "dora", 4, 8.0))
    effect = write_merged_copy(base, adapter, tmp_path / "copy", precision, [2, 5])
    stored: dict[str, mx.array] = mx.load(str(tmp_path / "copy" / "model.safetensors"))  # pyright: ignore
    merged = dict(merged_tensors(base, adapter))
    for module in (Q, "model.embed_tokens"):
        wanted = mx.quantize(mx.array(merged[f"{module}.weight"]), group_size=64, bits=bits)
        found = [stored[f"{module}.{part}"] for part in ("weight", "scales", "biases")]
        assert mx.array_equal(found[0], wanted[0])
        assert all(mx.array_equal(a, b.astype(mx.bfloat16)) for a, b in zip(found[1:], wanted[1:], strict=True))
    assert stored[f"{DOWN}.weight"].dtype == mx.bfloat16 and f"{DOWN}.scales" not in stored  # 96 columns
    assert set(load_file(tmp_path / "copy" / "model.safetensors")) == set(stored)
    assert effect.kept > 0.9
    logits, wanted_logits = mlx_lm_logits(tmp_path / "copy"), mlx_lm_logits(write_fp32(base, adapter, tmp_path))
    error = np.abs(logits - wanted_logits).max() / np.abs(wanted_logits).max()
    assert error < (0.06 if bits == 8 else 0.7)


def write_fp32(base: ModelFolder, adapter: Adapter, folder: Path) -> Path:
    from weights_bridge.merge import write_merged

    write_merged(base, adapter, folder / "fp32", [2])
    return folder / "fp32"


def test_a_packed_copy_says_how_it_is_packed_and_what_ends_an_answer(
    base: ModelFolder, made_adapter: Make, tmp_path: Path
) -> None:
    (tmp_path / "mine.jinja").write_text("{{ 'mine' }}")
    adapter = read_adapter(made_adapter())
    write_merged_copy(base, adapter, tmp_path / "copy", "6bit", [2, 5], tmp_path / "mine.jinja")
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"] == {"group_size": 64, "bits": 6, "mode": "affine"}
    assert (config["dtype"], config["rope_theta"]) == ("bfloat16", 50000.0)
    assert json.loads((tmp_path / "copy" / "generation_config.json").read_text())["eos_token_id"] == [2, 5]
    assert (tmp_path / "copy" / "chat_template.jinja").read_text() == "{{ 'mine' }}"
    assert (tmp_path / "copy" / "tokenizer.json").is_file()
    opened = open_base(tmp_path / "copy")
    opened.check_tensors(values=True)
    assert opened.origin == "mlx"


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", BF16), ("fp16", np.dtype("f2"))])
def test_a_half_copy_is_a_plain_directory_of_that_type(
    base: ModelFolder, made_adapter: Make, tmp_path: Path, precision: str, dtype: Any
) -> None:
    write_merged_copy(base, read_adapter(made_adapter()), tmp_path / "copy", precision, [2])
    opened = open_model_folder(tmp_path / "copy")
    opened.check_tensors()
    assert {file.entries[name].dtype for name, file in opened.stored.items()} == {dtype}


def test_what_packing_keeps_is_measured_in_the_directions_of_the_adapters_change(
    base: ModelFolder, made_adapter: Make, tmp_path: Path
) -> None:
    import mlx.core as mx

    adapter = read_adapter(made_adapter("llama", "lora", 4, 0.4))
    effect = write_merged_copy(base, adapter, tmp_path / "copy", "4bit", [2])

    def through_mlx(weight: Any) -> Any:
        if weight.shape[1] % 64:
            return weight.astype(BF16).astype(np.float64)
        words, scales, biases = mx.quantize(mx.array(weight), group_size=64, bits=4)
        halves = (part.astype(mx.bfloat16).astype(mx.float32) for part in (scales, biases))
        return np.array(mx.dequantize(words, *halves, group_size=64, bits=4)).astype(np.float64)

    lost_in_all, whole, shares = 0.0, 0.0, {}
    for module, parts in adapter.modules.items():
        weight = base.tensor(f"{module}.weight")
        change = 0.1 * parts["lora_B"].astype(np.float64) @ parts["lora_A"]
        exact = weight + change
        lost = through_mlx(exact.astype(np.float32)) - through_mlx(weight) - change
        left, right = np.linalg.qr(parts["lora_B"])[0], np.linalg.qr(parts["lora_A"].T)[0]
        inside = np.square(left.T @ lost @ right).sum()
        shares[module] = max(0, 1 - np.sqrt(inside / np.square(change).sum()))
        lost_in_all += inside
        whole += np.square(change).sum()
    assert effect.kept == pytest.approx(1 - np.sqrt(lost_in_all / whole), abs=1e-5)
    assert effect.worst[0] == pytest.approx(min(shares.values()), abs=1e-5)
    assert effect.worst[1] == min(shares, key=lambda module: shares[module])


def test_a_base_that_lies_on_the_grid_swallows_a_small_adapter_and_the_copy_is_refused(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    packed = write_packed(toy_model("llama"), tmp_path / "packed", {"group_size": 64, "bits": 4, "mode": "affine"})
    adapter = read_adapter(made_adapter("llama", "lora", 4, 0.4))
    with pytest.raises(BudgetMissedError, match=r"4bit keeps \d.*of the adapter's effect") as caught:
        write_merged_copy(open_base(packed), adapter, tmp_path / "copy", "4bit", [2])
    assert caught.value.exit_code == 3 and "fp32" in caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["packed"]
    assert write_merged_copy(open_base(packed), adapter, tmp_path / "copy", "8bit", [2]).kept > 0.9
    off_grid = write_merged_copy(open_model_folder(toy_model("llama")), adapter, tmp_path / "copy", "4bit", [2])
    assert off_grid.kept > 0.5  # a base that is packed for the first time keeps it


def test_no_change_is_kept_whole_and_a_change_against_the_adapter_is_none() -> None:
    effect, weight = PackedEffect(), np.ones((2, 64), np.float32)
    effect.add_packed("still", weight, weight.astype(np.float64), weight, weight)
    assert effect.kept == 1.0
    effect.add_packed("back", weight, weight + 0.5, weight, weight - 0.25)
    assert (effect.kept, effect.worst) == (0.0, (0.0, "back"))


def test_the_main_directions_hold_a_change_of_low_rank_whole() -> None:
    rng = np.random.default_rng(3)
    change = rng.standard_normal((70, 5)) @ rng.standard_normal((5, 90))
    left, right = main_directions(change)
    assert left.shape == (70, 5) and right.shape == (90, 5)
    np.testing.assert_allclose(left @ (left.T @ change @ right) @ right.T, change, atol=1e-10)
    assert main_directions(rng.standard_normal((70, 90)))[0].shape == (70, 16)
    assert main_directions(rng.standard_normal((7, 1)))[1].shape == (1, 1)


def test_there_is_nothing_to_pack_for_where_mlx_lm_has_no_definition(tmp_path: Path) -> None:
    sizes = {"vocab_size": 8, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 4, "type_vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | sizes))
    adapter = Adapter({"type": "lora", "rank": 1, "alpha": 1.0, "scale": 1.0}, {})
    with pytest.raises(StageError, match="mlx-lm has no bert to pack for"):
        write_merged_copy(open_model_folder(tmp_path), adapter, tmp_path / "copy", "4bit", [2])
