"""PEFT's adapter directories, in and out, against the library itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapters_compared import IDS, NONSENSE, UP, Q, assert_same, merged_logits, not_read_as_anything_else, patterned
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from weights_bridge.adapter_file import Adapter, read_adapter
from weights_bridge.errors import StageError
from weights_bridge.foreign_adapters import write_adapter_file
from weights_bridge.mlx_lm_adapter import write_mlx_lm
from weights_bridge.model_folder import ModelFolder
from weights_bridge.peft_adapter import PREFIX, WEIGHTS, read_peft, write_peft
from weights_bridge.peft_config import read_config

Make = Callable[..., Path]


def peft_logits(base: ModelFolder, folder: Path) -> Any:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.path, dtype=torch.float32), folder)
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.numpy()


@pytest.mark.parametrize("change", [lambda t, f: None, patterned], ids=["plain", "patterns"])
@pytest.mark.parametrize("kind", ["lora", "rslora", "dora"])
def test_peft_loads_what_was_written_with_the_same_logits_and_it_comes_back(
    base: ModelFolder, made_adapter: Make, tmp_path: Path, kind: str, change: Any
) -> None:
    adapter = read_adapter(made_adapter("llama", kind, 4, 8.0, change))
    write_peft(adapter, base, tmp_path / "peft")
    wanted = merged_logits(base, adapter)
    assert np.abs(peft_logits(base, tmp_path / "peft") - wanted).max() < 2e-5 * np.abs(wanted).max()
    assert_same(read_peft(tmp_path / "peft", base), adapter)
    write_adapter_file(tmp_path / "again.safetensors", read_peft(tmp_path / "peft", base))
    assert_same(read_adapter(tmp_path / "again.safetensors"), adapter)


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"use_rslora": True}, {"modules_to_save": ["lm_head"]}])
def test_what_peft_saves_is_read_and_merged_to_its_logits(
    untied: ModelFolder, tmp_path: Path, settings: dict[str, Any]
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    patterns: Any = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers.1.mlp.up_proj": 3}}
    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "up_proj"], **patterns, **settings)
    model: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(untied.path, dtype=torch.float32), config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
        wanted = model.eval()(torch.tensor(IDS)).logits.numpy()
    model.save_pretrained(tmp_path / "peft")
    adapter = read_peft(tmp_path / "peft", untied)
    assert np.abs(merged_logits(untied, adapter) - wanted).max() < 2e-5 * np.abs(wanted).max()
    assert list(adapter.saved) == (["lm_head.weight"] if "modules_to_save" in settings else [])
    write_peft(adapter, untied, tmp_path / "again")
    assert np.abs(peft_logits(untied, tmp_path / "again") - wanted).max() < 2e-5 * np.abs(wanted).max()
    assert_same(read_peft(tmp_path / "again", untied), adapter)


@pytest.fixture
def peft_dir(base: ModelFolder, made_adapter: Make, tmp_path: Path) -> Callable[..., Path]:
    def make(kind: str = "lora") -> Path:
        write_peft(read_adapter(made_adapter("llama", kind, 4, 8.0)), base, tmp_path / "peft")
        return tmp_path / "peft"

    return make


def renamed(folder: Path, change: Callable[[str], str]) -> None:
    save_file({change(name): array for name, array in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)


@pytest.mark.parametrize("end", [".lora_magnitude_vector.weight", ".lora_magnitude_vector.default.weight"])
def test_every_spelling_of_the_magnitude_is_read(base: ModelFolder, peft_dir: Any, end: str) -> None:
    folder = peft_dir("dora")
    wanted = read_peft(folder, base)
    renamed(folder, lambda name: name.replace(".lora_magnitude_vector", end).replace("lora_A.w", "lora_A.default.w"))
    assert_same(read_peft(folder, base), wanted)


def test_a_magnitude_by_another_convention_is_not_passed_over(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir("dora")
    renamed(folder, lambda name: name.replace("lora_magnitude_vector", "dora_scale"))
    with pytest.raises(StageError, match=r"q_proj\.dora_scale: not understood"):
        read_peft(folder, base)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_by_tensor(base: ModelFolder, peft_dir: Any, value: float) -> None:
    folder = peft_dir()
    tensors = load_file(folder / WEIGHTS)
    tensors[f"{PREFIX}{Q}.lora_B.weight"][3, 1] = value
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match=r"q_proj\.lora_B: holds values that are not finite"):
        read_peft(folder, base)


def test_a_dora_without_magnitudes_is_refused(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir("lora")
    edit_json(folder / "adapter_config.json", lambda config: config.update(use_dora=True))
    with pytest.raises(StageError, match=r"q_proj\.magnitude: missing"):
        read_peft(folder, base)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "LOHA"),
        ("bias", "all"),
        ("fan_in_fan_out", True),
        ("lora_bias", True),
        ("init_lora_weights", "pissa"),
        ("layer_replication", [[0, 1]]),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["x"]),
        ("alora_invocation_tokens", [1, 2]),
        ("use_qalora", True),
        ("a_field_of_tomorrow", 3),
        ("lora_alpha", "16"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_its_field(
    base: ModelFolder, peft_dir: Any, field: str, value: object
) -> None:
    folder = peft_dir()
    edit_json(folder / "adapter_config.json", lambda config: config.update({field: value}))
    with pytest.raises(StageError, match=f"\n  {field}: "):
        read_peft(folder, base)


def test_another_alpha_is_another_scale_and_another_rank_is_refused(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir()
    edit_json(folder / "adapter_config.json", lambda config: config.update(lora_alpha=64))
    assert read_peft(folder, base).scale_of(Q) == 16.0
    edit_json(folder / "adapter_config.json", lambda config: config.update(r=8))
    with pytest.raises(StageError, match=r"lora_A: found \(4, 64\), wanted \(8, 64\)"):
        read_peft(folder, base)


@pytest.mark.parametrize("kind", ["dora-cols", "bora", "lora-xs"])
def test_kinds_that_peft_does_not_have_are_refused(
    base: ModelFolder, made_adapter: Make, tmp_path: Path, kind: str
) -> None:
    adapter = read_adapter(made_adapter("llama", kind, 4, 8.0))
    with pytest.raises(StageError, match=f"type: {kind} has no counterpart in PEFT"):
        write_peft(adapter, base, tmp_path / "peft")
    with pytest.raises(StageError, match=f"type: {kind}"):
        write_mlx_lm(adapter, base, tmp_path / "mlx")


def test_a_pattern_means_the_end_of_a_name_as_peft_reads_it(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir()
    before = peft_logits(base, folder)
    patterns = {"layers.1": 99, "q_pro": 99, "proj": 99}  # none is a whole end of a module's name
    edit_json(folder / "adapter_config.json", lambda config: config.update(alpha_pattern=patterns))
    np.testing.assert_array_equal(peft_logits(base, folder), before)
    adapter = read_peft(folder, base)
    assert {adapter.scale_of(module) for module in adapter.modules} == {2.0}
    edit_json(folder / "adapter_config.json", lambda config: config.update(alpha_pattern={"1.mlp.up_proj": 99}))
    assert read_peft(folder, base).scale_of(UP) == 99 / 4


def test_only_the_modules_that_were_trained_are_named_to_peft(
    base: ModelFolder, made_adapter: Make, tmp_path: Path
) -> None:
    def one(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        for name in [name for name in tensors if not name.startswith(Q)]:
            del tensors[name]
        facts["targets"] = [Q]

    adapter = read_adapter(made_adapter("llama", "dora", 4, 8.0, one))
    write_peft(adapter, base, tmp_path / "peft")
    assert json.loads((tmp_path / "peft" / "adapter_config.json").read_text())["target_modules"] == [Q]
    wanted = merged_logits(base, adapter)
    assert np.abs(peft_logits(base, tmp_path / "peft") - wanted).max() < 2e-5 * np.abs(wanted).max()


NONSENSE += [{"q_proj": value} for value in ("x", 0, -1, 1.5, True, None, float("nan"), [], 10**400)] + [{"(": 4}]


@pytest.mark.parametrize(
    "field",
    [
        *("peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern"),
        *("target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern"),
        *("bias", "fan_in_fan_out", "init_lora_weights", "task_type", "base_model_name_or_path"),
    ],
)
def test_no_value_of_a_peft_field_gets_past_a_refusal_as_anything_else(
    base: ModelFolder, peft_dir: Any, field: str
) -> None:
    folder = peft_dir("dora")
    config = json.loads((folder / "adapter_config.json").read_text())
    for value in NONSENSE:
        (folder / "adapter_config.json").write_text(json.dumps(config | {field: value}))
        not_read_as_anything_else(lambda: read_peft(folder, base))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("r", 0, "r: found 0, wanted a whole number above 0"),
        ("r", 4.5, "r: found 4.5, wanted a whole number above 0"),
        ("lora_alpha", float("nan"), "lora_alpha: found nan, wanted a number above 0"),
        ("lora_dropout", 1, "lora_dropout: found 1, wanted a number from 0 to below 1"),
        ("rank_pattern", {"q_proj": "8"}, "rank_pattern: found '8' for q_proj, wanted a whole number above 0"),
        ("alpha_pattern", {"q_proj": 0}, "alpha_pattern: found 0 for q_proj, wanted a number above 0"),
        ("alpha_pattern", {"(q_proj": 4}, "alpha_pattern: '(q_proj' is no regular expression"),
        ("use_dora", "false", "use_dora: found 'false', wanted true or false"),
        ("modules_to_save", "lm_head", "modules_to_save: found 'lm_head', wanted a list of names"),
        ("target_modules", [1], "target_modules: found [1], wanted a list of names"),
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_refused_by_its_field(
    base: ModelFolder, peft_dir: Any, field: str, value: object, said: str
) -> None:
    folder = peft_dir()
    edit_json(folder / "adapter_config.json", lambda config: config.update({field: value}))
    with pytest.raises(StageError) as caught:
        read_peft(folder, base)
    assert f"\n  {said}" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, True),
        ({"target_modules": r".*\.(q|k|v|o)_proj|.*mlp\..*"}, True),
        ({"target_modules": "all-linear"}, True),
        ({"exclude_modules": ["layers.0.self_attn.q_proj"]}, False),
        ({"exclude_modules": r".*\.0\.self_attn\.q_proj"}, False),
        ({"layers_to_transform": [0]}, True),
        ({"layers_to_transform": 1}, False),
        ({"target_modules": ["k_proj"]}, False),
        ({"target_modules": None}, False),
    ],
    ids=str,
)
def test_a_module_that_the_configuration_names_and_the_file_lost_is_refused(
    base: ModelFolder, peft_dir: Any, changes: dict[str, Any], missing: bool
) -> None:
    """PEFT would begin it anew, with nothing learnt, and warn; `adapted` follows PEFT's own rules for names."""
    folder = peft_dir()
    tensors = {name: array for name, array in load_file(folder / WEIGHTS).items() if Q not in name}
    save_file(tensors, folder / WEIGHTS)
    edit_json(folder / "adapter_config.json", lambda config: config.update(changes))
    if missing:
        with pytest.raises(StageError, match=f"{Q}: named by target_modules, its tensors are missing"):
            read_peft(folder, base)
    else:
        assert Q not in read_peft(folder, base).modules


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["q_proj", "model.layers.1.mlp.up_proj"]},
        {"target_modules": r".*layers\.\d+\.self_attn\.\w_proj"},
        {"target_modules": ["up_proj", "v_proj"], "exclude_modules": ["layers.1.mlp.up_proj"]},
        {"target_modules": ["up_proj", "model.layers.0.mlp.down_proj"], "layers_to_transform": [1]},
        {"target_modules": ["up_proj"], "layers_to_transform": [0], "layers_pattern": "layers"},
    ],
    ids=str,
)
def test_the_modules_a_configuration_means_are_those_that_peft_adapts(
    base: ModelFolder, tmp_path: Path, changes: dict[str, Any]
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base.path)
    get_peft_model(model, LoraConfig(r=4, **changes)).save_pretrained(tmp_path / "theirs")  # pyright: ignore
    config = read_config(json.loads((tmp_path / "theirs" / "adapter_config.json").read_text()), tmp_path)
    held = {name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in load_file(tmp_path / "theirs" / WEIGHTS)}
    assert config.adapted(base.architecture.linear_modules(base.config)) == held


def test_a_whole_module_that_the_configuration_names_and_the_file_lost_is_refused(
    untied: ModelFolder, made_adapter: Make, tmp_path: Path
) -> None:
    adapter = read_adapter(made_adapter("qwen3", "lora", 4, 8.0))
    saved = {"lm_head.weight": dict(untied.tensors())["lm_head.weight"]}
    write_peft(Adapter(adapter.facts, adapter.modules, saved), untied, tmp_path / "peft")
    assert list(read_peft(tmp_path / "peft", untied).saved) == ["lm_head.weight"]
    tensors = load_file(tmp_path / "peft" / WEIGHTS)
    del tensors[PREFIX + "lm_head.weight"]
    save_file(tensors, tmp_path / "peft" / WEIGHTS)
    with pytest.raises(StageError, match=r"lm_head\.weight: named by modules_to_save, its tensors are missing"):
        read_peft(tmp_path / "peft", untied)


def test_two_tensors_for_one_place_are_refused_and_none_wins(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir()
    tensors = load_file(folder / WEIGHTS)
    tensors[f"{PREFIX}{Q}.lora_A.other.weight"] = 2 * tensors[f"{PREFIX}{Q}.lora_A.weight"]
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match=r"lora_A\.\S*weight: another tensor of the file has this place already"):
        read_peft(folder, base)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_numbers_that_are_no_floats_are_refused_by_tensor(base: ModelFolder, peft_dir: Any, dtype: Any) -> None:
    folder = peft_dir()
    tensors = load_file(folder / WEIGHTS)
    tensors[f"{PREFIX}{Q}.lora_B.weight"] = tensors[f"{PREFIX}{Q}.lora_B.weight"].astype(dtype)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match=r"q_proj\.lora_B: holds \w+, wanted floats"):
        read_peft(folder, base)


def test_a_float64_beyond_fp32_is_an_infinity_and_refused(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir()
    tensors = load_file(folder / WEIGHTS)
    tensors[f"{PREFIX}{Q}.lora_B.weight"] = np.full((64, 4), 1e300)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match=r"q_proj\.lora_B: holds values that are not finite"):
        read_peft(folder, base)


STYLES = {
    "ComfyUI": lambda m: f"diffusion_model.{m}.lora_A.weight",
    "LyCORIS": lambda m: f"{m.replace('.', '_')}.hada_w1_a",
    "kohya": lambda m: f"lora_unet_{m.replace('.', '_')}.lora_down.weight",
    "diffusers": lambda m: f"unet.{m}.lora.down.weight",
    "mlx-lm": lambda m: f"decoder.{m}.lora_a",
    "stable-audio-3 parametrizations": lambda m: f"{m}.parametrizations.weight.0.lora_A",
}


@pytest.mark.parametrize("style", STYLES)
def test_no_match_at_all_is_an_error_that_names_the_style(base: ModelFolder, peft_dir: Any, style: str) -> None:
    folder = peft_dir()
    save_file({STYLES[style](Q): np.ones((4, 64), np.float32)}, folder / WEIGHTS)
    with pytest.raises(StageError, match=f"0 of 1 tensors match llama; its tensors are named as by {style}"):
        read_peft(folder, base)


def test_an_adapter_on_a_tied_head_is_refused(base: ModelFolder, peft_dir: Any) -> None:
    folder = peft_dir()
    tensors = load_file(folder / WEIGHTS)
    size = (base.config["vocab_size"], 64)
    tensors[PREFIX + "model.embed_tokens.modules_to_save.default.weight"] = np.ones(size, np.float32)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match=r"model\.embed_tokens\.weight: head and embedding are one table"):
        read_peft(folder, base)
    tensors[PREFIX + "lm_head.lora_A.weight"] = np.ones((4, 64), np.float32)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(StageError, match="lm_head: not a Linear of"):
        read_peft(folder, base)


def test_a_pickled_adapter_needs_leave(base: ModelFolder, peft_dir: Any) -> None:
    import torch

    from converters.pickle_checkpoint import tensors_of_pickle

    folder = peft_dir()
    wanted = read_peft(folder, base)
    torch.save({n: torch.from_numpy(a) for n, a in load_file(folder / WEIGHTS).items()}, folder / "adapter_model.bin")
    (folder / WEIGHTS).unlink()
    with pytest.raises(StageError, match="pickle is not read") as caught:
        read_peft(folder, base)
    assert "--allow-pickle" in caught.value.hint
    assert_same(read_peft(folder, base, tensors_of_pickle), wanted)
