"""Merging against torch's own formula, and a directory that transformers loads cleanly."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import FULL, edit_json
from safetensors.numpy import load_file, save_file

from mlx_sentis.demo.toy import MODEL_TYPES
from weights_bridge.adapter_file import read_adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of
from weights_bridge.merge import merged_tensors, merged_weight, require_base, write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.safetensors_writer import write_safetensors

Make = Callable[..., Path]
Q = "model.layers.0.self_attn.q_proj"


def by_torch(weight: Any, parts: dict[str, Any], scale: float) -> Any:
    """The papers' formulas, in torch float64."""
    import torch

    own = {name: torch.from_numpy(array).double() for name, array in parts.items()}
    base = torch.from_numpy(weight).double().flatten(1)
    if "M_xs" in own:
        direction = base + scale * torch.linalg.multi_dot([own["U"], own["M_xs"], own["V"].T])
    else:
        direction = torch.addmm(base, own["lora_B"], own["lora_A"], alpha=scale)
    rows, columns = own.get("magnitude_r"), own.get("magnitude_c")
    if "magnitude" in own:  # one magnitude stands for the rows or for the columns: these weights are not square
        rows, columns = (own["magnitude"], None) if len(own["magnitude"]) == len(base) else (None, own["magnitude"])
    if rows is not None:
        direction = torch.diag(rows) @ torch.nn.functional.normalize(direction, dim=1)
    if columns is not None:
        direction = torch.nn.functional.normalize(direction, dim=0) @ torch.diag(columns)
    return direction.reshape(weight.shape).numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rank", "alpha"), [(4, 8.0), (24, 24.0), (8, 160.0)])
@pytest.mark.parametrize("shape", [(48, 32), (32, 8, 5)])
def test_a_merged_weight_is_the_formula_rounded_once(
    kind: str, rank: int, alpha: float, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal(shape).astype(np.float32)
    out, width = weight.reshape(len(weight), -1).shape
    parts = {
        name: (rng.uniform(0.5, 2, side) if "magnitude" in name else rng.standard_normal(side) / 8).astype(np.float32)
        for name, side in KINDS[kind].shapes(out, width, rank).items()
    }
    scale = KINDS[kind].scale(rank, alpha)
    merged = merged_weight(weight, parts, KINDS[kind], scale)
    assert merged.dtype == np.float32 and merged.shape == shape
    assert np.abs(merged - weight).max() > 0.01
    np.testing.assert_array_max_ulp(merged, by_torch(weight, parts, scale).astype(np.float32), maxulp=1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_is_merged_with_its_own_rank_and_alpha(
    toy_model: Callable[[str], Path], made_adapter: Make, kind: str
) -> None:
    up = "model.layers.1.mlp.up_proj"

    def change(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        facts["ranks"], facts["alphas"] = {up: 2}, {up: 6.0, Q: 1.0}
        for name in [name for name in tensors if name.startswith(up) and "magnitude" not in name]:
            keep = (
                (slice(2),) if name.endswith("lora_A") else (slice(2), slice(2)) if "M_xs" in name else (..., slice(2))
            )
            tensors[name] = np.ascontiguousarray(tensors[name][keep])

    base = open_model_folder(toy_model("llama"))
    adapter = read_adapter(made_adapter("llama", kind, 4, 8.0, change))
    merged = dict(merged_tensors(base, adapter))
    scale = {up: KINDS[kind].scale(2, 6.0), Q: KINDS[kind].scale(4, 1.0)}
    for module in (up, Q):
        parts = adapter.modules[module]
        if module == Q and "magnitude" in parts:
            continue  # square: `by_torch` could not tell rows from columns
        wanted = by_torch(base.tensor(f"{module}.weight"), parts, scale[module])
        np.testing.assert_allclose(merged[f"{module}.weight"], wanted, rtol=1e-6, atol=1e-7)


def test_the_weights_the_adapter_was_trained_on_are_required(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    right = {"model.safetensors": sha256_of(folder / "model.safetensors")}
    adapter = read_adapter(made_adapter(change=lambda tensors, facts: facts.update(base=right)))
    require_base(open_model_folder(folder), adapter)
    weights = load_file(folder / "model.safetensors")
    weights[f"{Q}.weight"][0, 0] += 1e-3
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(
        StageError, match=r"not the weights the adapter was trained on:\n  model.safetensors: missing or"
    ):
        require_base(open_model_folder(folder), adapter)
    require_base(open_model_folder(folder), read_adapter(made_adapter()))  # a file that names none


def test_a_dora_whose_magnitude_is_the_norm_changes_nothing() -> None:
    weight = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    parts = {"lora_A": np.ones((2, 5), "f4"), "lora_B": np.zeros((6, 2), "f4")}
    parts["magnitude"] = np.linalg.norm(weight.astype(np.float64), axis=1).astype(np.float32)
    np.testing.assert_allclose(merged_weight(weight, parts, KINDS["dora"], 1.0), weight, rtol=2e-7)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_transformers_loads_the_merged_directory_with_no_key_missing_or_unexpected(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path, model_type: str
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, adapter = open_model_folder(toy_model(model_type)), read_adapter(made_adapter(model_type))
    write_merged(base, adapter, tmp_path / "merged", stop_ids=[2, 5])
    merged, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values()), info
    assert merged.generation_config.eos_token_id == [2, 5]
    state = merged.state_dict()
    for module, parts in adapter.modules.items():
        wanted = by_torch(base.tensor(f"{module}.weight"), parts, 2.0)
        np.testing.assert_allclose(state[f"{module}.weight"].numpy(), wanted, rtol=1e-6, atol=1e-7)
    untouched = base.tensor("model.embed_tokens.weight")
    np.testing.assert_array_equal(state["model.embed_tokens.weight"].numpy(), untouched)
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
        == (base.path / "chat_template.jinja").read_text()
    )


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_merged_directory_is_a_model_folder_again(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path, model_type: str
) -> None:
    base = open_model_folder(toy_model(model_type))
    write_merged(base, read_adapter(made_adapter(model_type)), tmp_path / "merged", stop_ids=[2])
    merged = open_model_folder(tmp_path / "merged")
    merged.check_tensors()
    assert {k: v for k, v in merged.config.items() if k != "dtype"} == {
        k: v for k, v in base.config.items() if k != "dtype"
    }
    assert list(load_file(tmp_path / "merged" / "model.safetensors")) == list(merged.tensor_names())


def test_the_configuration_says_fp32_and_both_places_of_the_rotary_base(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    edit_json(base / "config.json", lambda c: (c.pop("rope_theta"), c.pop("dtype"), c.update(torch_dtype="bfloat16")))
    write_merged(open_model_folder(base), read_adapter(made_adapter()), tmp_path / "merged", [2])
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert (config["dtype"], config["rope_theta"]) == ("float32", 50000.0)
    assert config["rope_parameters"]["rope_theta"] == 50000.0
    assert "torch_dtype" not in config


def test_a_bf16_base_is_merged_in_fp32(toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path) -> None:
    import ml_dtypes

    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    half = {n: a.astype(ml_dtypes.bfloat16) for n, a in load_file(folder / "model.safetensors").items()}
    half["lm_head.weight"] = half["model.embed_tokens.weight"].copy()  # a tied head stored twice
    save_file(half, folder / "model.safetensors")
    adapter = read_adapter(made_adapter())
    write_merged(open_model_folder(folder), adapter, tmp_path / "merged", [2])
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert "lm_head.weight" not in merged
    assert {array.dtype for array in merged.values()} == {np.dtype("f4")}
    wanted = by_torch(half[f"{Q}.weight"].astype(np.float32), adapter.modules[Q], 2.0)
    np.testing.assert_allclose(merged[f"{Q}.weight"], wanted, rtol=1e-6, atol=1e-7)


def test_another_template_takes_the_models_place(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    (tmp_path / "mine.jinja").write_text("{{ 'mine' }}")
    base, adapter = open_model_folder(toy_model("llama")), read_adapter(made_adapter())
    write_merged(base, adapter, tmp_path / "merged", [2], tmp_path / "mine.jinja")
    assert (tmp_path / "merged" / "chat_template.jinja").read_text() == "{{ 'mine' }}"


def test_a_merge_holds_the_largest_tensor_once_and_wide(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    """Gemma's table is 63 % of it; held as stored, widened, copied and looked at, it took 3.6 times the model."""
    base, ids = Path(shutil.copytree(toy_model("llama"), tmp_path / "base")), 200_000
    tensors = {name: a.astype(ml_dtypes.bfloat16) for name, a in load_file(base / "model.safetensors").items()}
    tensors["model.embed_tokens.weight"] = np.ones((ids, 64), ml_dtypes.bfloat16)
    shapes, dtypes = ({n: getattr(a, what) for n, a in tensors.items()} for what in ("shape", "dtype"))
    write_safetensors(base / "model.safetensors", shapes, tensors.items(), {}, dtypes)
    edit_json(base / "config.json", lambda config: config.update(vocab_size=ids))
    folder, adapter = open_model_folder(base), read_adapter(made_adapter())
    del tensors
    tracemalloc.start()
    write_merged(folder, adapter, tmp_path / "merged", [2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * ids * 64 * 4  # bytes; a piece of 16 MiB stands beside it
    written = open_model_folder(tmp_path / "merged").tensor("model.embed_tokens.weight")
    assert written.shape == (ids, 64) and (written == 1).all()


def test_values_beyond_half_precision_are_named_and_not_written_as_infinities(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    tensors = load_file(base / "model.safetensors")
    for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):  # one that no adapter touches, one that is
        tensors[name].flat[3] = 131072.0  # bf16 has it exactly
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    folder, adapter = open_model_folder(base), read_adapter(made_adapter(kind="lora"))
    with pytest.raises(StageError) as caught:
        write_merged(folder, adapter, tmp_path / "half", [2], dtype="fp16")
    assert caught.value.message.splitlines()[1:] == [
        "  model.layers.1.mlp.up_proj.weight: holds values beyond the range of fp16",
        "  model.norm.weight: holds values beyond the range of fp16",
    ]
    assert not (tmp_path / "half").exists()
    write_merged(folder, adapter, tmp_path / "wide", [2], dtype="bf16")


def test_a_generation_configuration_that_is_none_is_one_line_and_nothing_is_written(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    (base / "generation_config.json").write_text("[]")
    with pytest.raises(StageError, match=r"generation_config\.json of the base: not a JSON object"):
        write_merged(open_model_folder(base), read_adapter(made_adapter()), tmp_path / "merged", [2])
    assert not (tmp_path / "merged").exists()


def test_an_adapter_of_another_model_is_refused_with_every_module(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    def change(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        tensors[f"{Q}.lora_A"] = tensors[f"{Q}.lora_A"][:, :32]
        for name in [name for name in tensors if "layers.1.mlp.up_proj" in name]:
            tensors[name.replace("layers.1", "layers.7")] = tensors.pop(name)
        facts["targets"] = [t.replace("layers.1.mlp.up_proj", "layers.7.mlp.up_proj") for t in facts["targets"]]

    base, adapter = open_model_folder(toy_model("llama")), read_adapter(made_adapter(change=change))
    with pytest.raises(StageError) as caught:
        write_merged(base, adapter, tmp_path / "merged", [2])
    assert caught.value.message.splitlines()[1:] == [
        f"  {Q}.lora_A: found (4, 32), wanted (4, 64)",
        f"  model.layers.7.mlp.up_proj: not a Linear of {base.path}",
    ]
    assert not (tmp_path / "merged").exists()


def test_a_base_that_holds_nan_is_not_merged_and_the_tensor_is_named(
    toy_model: Callable[[str], Path], made_adapter: Make, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "base"))
    weights = dict(load_file(folder / "model.safetensors"))
    weights["model.norm.weight"][3] = np.nan
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(StageError, match=r"model\.norm\.weight: holds NaN or infinities"):
        write_merged(open_model_folder(folder), read_adapter(made_adapter()), tmp_path / "merged", [2])
    assert not (tmp_path / "merged").exists()


def test_a_full_disk_leaves_no_merged_directory(
    toy_model: Callable[[str], Path], made_adapter: Make, small_disk: Path
) -> None:
    (small_disk / "merged").mkdir()
    (small_disk / "merged" / "old").write_text("old")
    with pytest.raises(StageError, match=FULL):
        write_merged(open_model_folder(toy_model("llama")), read_adapter(made_adapter()), small_disk / "merged", [2])
    assert [p.relative_to(small_disk).as_posix() for p in sorted(small_disk.rglob("*"))] == ["merged", "merged/old"]
