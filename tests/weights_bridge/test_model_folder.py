"""Opening a model directory: the configuration settled, the tensors checked, every fault at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import edit_json, write_packed
from safetensors.numpy import load_file, save_file

from mlx_sentis.demo.toy import MODEL_TYPES
from weights_bridge.errors import StageError
from weights_bridge.model_folder import layer_kinds, normalised_config, open_base, open_model_folder
from weights_bridge.safetensors_reader import open_safetensors
from weights_bridge.safetensors_writer import write_safetensors


@pytest.fixture
def config(toy_model: Callable[[str], Path]) -> Callable[..., dict[str, Any]]:
    """Return a toy configuration without some keys and with others changed."""

    def make(model_type: str = "llama", *without: str, **changes: Any) -> dict[str, Any]:
        document = json.loads((toy_model(model_type) / "config.json").read_text())
        return {key: value for key, value in (document | changes).items() if key not in without}

    return make


@pytest.fixture
def folder(toy_model: Callable[[str], Path], tmp_path: Path) -> Path:
    """A toy llama that a test may change."""
    return Path(shutil.copytree(toy_model("llama"), tmp_path / "model"))


def normal(config: Any) -> dict[str, Any]:
    return normalised_config(config, Path("m"))


def refusal(config: Any) -> str:
    with pytest.raises(StageError) as caught:
        normal(config)
    return caught.value.message


# --- configuration


def test_a_base_in_rope_parameters_only_is_put_at_the_top(config: Callable[..., dict[str, Any]]) -> None:
    assert normal(config("llama", "rope_theta"))["rope_theta"] == 50000.0
    gemma = normal(config("gemma3_text", "rope_theta", "rope_local_base_freq"))
    assert (gemma["rope_theta"], gemma["rope_local_base_freq"]) == (50000.0, 5000.0)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_transformers_own_way_of_writing_gives_the_same_bases(toy_model: Any, tmp_path: Path, model_type: str) -> None:
    from transformers import AutoConfig

    AutoConfig.from_pretrained(toy_model(model_type)).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written.pop("rope_theta", None) in (None, 50000.0)
    again, ours = normal(written), open_model_folder(toy_model(model_type)).config
    for key in ("rope_theta", "rope_local_base_freq", "sliding_window_pattern", "tie_word_embeddings", "head_dim"):
        assert again.get(key) == ours.get(key), key
    assert layer_kinds(again) == layer_kinds(ours)


def test_disagreeing_places_are_refused_with_both_values(config: Callable[..., dict[str, Any]]) -> None:
    message = refusal(config("llama", rope_theta=10000.0))
    assert message == "m/config.json: rope_theta is 10000.0 at the top and 50000.0 in rope_parameters"
    message = refusal(config("gemma3_text", rope_local_base_freq=10000.0))
    assert message == "m/config.json: rope_local_base_freq is 10000.0 at the top and 5000.0 in rope_parameters"


def test_without_any_base_transformers_default_holds(config: Callable[..., dict[str, Any]]) -> None:
    for model_type in ("llama", "qwen2", "qwen3"):
        assert normal(config(model_type, "rope_theta", "rope_parameters"))["rope_theta"] == 10000.0


SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALING["original_max_position_embeddings"] = 64


def test_rope_scaling_is_put_at_the_top_too(config: Callable[..., dict[str, Any]]) -> None:
    parameters = SCALING | {"rope_theta": 50000.0}
    assert normal(config("llama", rope_parameters=parameters))["rope_scaling"] == SCALING
    assert "rope_scaling" not in normal(config("llama"))
    older = {"type" if key == "rope_type" else key: value for key, value in SCALING.items()}
    assert normal(config("llama", rope_parameters=parameters, rope_scaling=older))["rope_scaling"] == SCALING
    other = SCALING | {"factor": 4.0}
    assert "rope_scaling is" in refusal(config("llama", rope_parameters=parameters, rope_scaling=other))


@pytest.mark.parametrize(
    "key", ["model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
)
def test_a_missing_key_that_every_architecture_needs_is_named(config: Callable[..., dict[str, Any]], key: str) -> None:
    assert refusal(config("llama", key)) == f"m/config.json: keys are missing:\n  {key}"


def test_all_missing_keys_are_named_at_once() -> None:
    assert len(refusal({}).splitlines()) == 7


@pytest.mark.parametrize("value", ["64", 64.0, 0, -1, None, True, [64]])
def test_a_size_that_is_no_whole_number_is_refused(config: Callable[..., dict[str, Any]], value: object) -> None:
    message = refusal(config("llama", hidden_size=value))
    assert f"hidden_size: found {value!r}, wanted a whole number above 0" in message


NONSENSE: list[Any] = [
    True,
    "x",
    "",
    0,
    -1,
    1.5,
    10**30,
    float("nan"),
    float("inf"),
    [],
    [1],
    ["x"],
    {},
    {"a": {}},
    [[]],
]
KEYS = (
    *("model_type", "num_hidden_layers", "num_key_value_heads", "head_dim", "rope_theta", "rope_parameters"),
    *(
        "rope_scaling",
        "rope_local_base_freq",
        "partial_rotary_factor",
        "layer_types",
        "no_rope_layers",
        "sliding_window",
    ),
    *("sliding_window_pattern", "quantization", "quantization_config", "tie_word_embeddings", "rms_norm_eps"),
    *("attn_logit_softcapping", "query_pre_attn_scalar", "attention_bias", "no_rope_layer_interval"),
)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "gemma2", "smollm3", "phi3"])
def test_no_value_of_a_key_gets_past_a_refusal_as_anything_else(
    toy_model: Callable[[str], Path], tmp_path: Path, model_type: str
) -> None:
    folder = Path(shutil.copytree(toy_model(model_type), tmp_path / "model"))
    whole = json.loads((folder / "config.json").read_text())
    for key in KEYS:
        for value in NONSENSE:
            (folder / "config.json").write_text(json.dumps(whole | {key: value}))
            with suppress(StageError):  # what makes sense may pass; any other exception fails here
                open_base(folder).check_tensors()


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("rope_theta", "10000", "a number above 0"),
        ("rope_parameters", {"rope_theta": "10000"}, "a number above 0"),
        ("rope_parameters", {"sliding_attention": {"rope_theta": -1}}, "a number above 0"),
        ("rms_norm_eps", float("nan"), "a number above 0"),
        ("tie_word_embeddings", "no", "true or false"),
        ("quantization", [4], "an object"),
        ("layer_types", ["full_attention", "linear_attention"], "a list of full_attention and sliding_attention"),
        ("num_hidden_layers", 10**9, "at most 10000 are read"),
        ("layer_types", ["full_attention"], "has 1 entries for 2 layers"),
        ("num_key_value_heads", 3, "4 heads cannot share 3"),
        ("num_attention_heads", 3, "3 do not divide hidden_size 64"),
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_named_by_its_key(
    config: Callable[..., dict[str, Any]], key: str, value: object, wanted: str
) -> None:
    changes = {"num_key_value_heads": None, "head_dim": None} if key == "num_attention_heads" else {}
    message = refusal(config("llama", **changes | {key: value}))
    assert key in message and wanted in message, message


@pytest.mark.parametrize("document", [[], "text", 3, None])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    assert refusal(document) == "m/config.json: not a JSON object"


def test_optional_keys_have_the_architectures_defaults(config: Callable[..., dict[str, Any]]) -> None:
    assert normal(config("llama", "tie_word_embeddings"))["tie_word_embeddings"] is False
    assert normal(config("gemma3_text", "tie_word_embeddings"))["tie_word_embeddings"] is True
    assert normal(config("llama", "num_key_value_heads"))["num_key_value_heads"] == 4
    assert normal(config("llama", "rms_norm_eps"))["rms_norm_eps"] == 1e-6


def test_layer_kinds_come_from_the_list_or_from_the_period(config: Callable[..., dict[str, Any]]) -> None:
    six = config("gemma3_text", "layer_types", num_hidden_layers=6, sliding_window_pattern=3)
    assert [kind[0] for kind in layer_kinds(normal(six))] == ["s", "s", "f", "s", "s", "f"]
    assert layer_kinds(normal(config("gemma3_text"))) == ["sliding_attention", "full_attention"]
    assert layer_kinds(normal(config("llama"))) == ["full_attention"] * 2


def test_layers_without_one_period_are_refused_for_gemma(config: Callable[..., dict[str, Any]]) -> None:
    kinds = ["full_attention", "sliding_attention"]
    assert "do not repeat with one period" in refusal(config("gemma3_text", layer_types=kinds))
    assert "do not repeat" in refusal(config("gemma3_text", sliding_window_pattern=6))
    all_sliding = config("gemma3_text", "sliding_window_pattern", layer_types=["sliding_attention"] * 2)
    assert normal(all_sliding)["sliding_window_pattern"] == 3


def test_sliding_layers_of_an_architecture_that_has_none_are_refused(folder: Path) -> None:
    kinds = ["full_attention", "sliding_attention"]
    edit_json(folder / "config.json", lambda c: c.update(layer_types=kinds))
    with pytest.raises(StageError, match="llama with sliding layers is not supported"):
        open_model_folder(folder)


# --- directory and tensors


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no such model directory"):
        open_model_folder(tmp_path / "gone")
    with pytest.raises(StageError, match=r"config\.json: no such file"):
        open_model_folder(tmp_path)


def test_a_directory_without_safetensors_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(StageError) as caught:
        open_model_folder(folder).check_tensors()
    assert "no *.safetensors file" in caught.value.message
    assert "pytorch_model.bin is pickle" in caught.value.message
    assert "--allow-pickle" in caught.value.hint


def test_a_cut_file_is_refused_by_name(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(StageError, match=r"model\.safetensors: not a whole safetensors file"):
        open_model_folder(folder).check_tensors()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_whole_directory_passes(toy_model: Callable[[str], Path], model_type: str) -> None:
    open_model_folder(toy_model(model_type)).check_tensors()


def test_missing_extra_and_misshapen_tensors_are_named_at_once(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.stranger"] = tensors.pop("model.norm.weight")
    tensors["model.layers.0.mlp.up_proj.weight"] = np.ascontiguousarray(tensors["model.layers.0.mlp.up_proj.weight"].T)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(StageError) as caught:
        open_model_folder(folder).check_tensors()
    assert caught.value.message.splitlines()[1:] == [
        "  model.layers.0.mlp.up_proj.weight: found (64, 96), wanted (96, 64)",
        "  model.norm.weight: missing, wanted (64,)",
        "  model.stranger: found (64,), not in the table",
    ]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, ml_dtypes.float8_e4m3fn], ids=lambda d: d.__name__)
def test_weights_that_are_no_floats_are_refused_by_tensor(folder: Path, dtype: Any) -> None:
    """8-bit floats come with scales that only their writer knows; integers are somebody's packing."""
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].astype(dtype)
    save(folder / "model.safetensors", tensors)
    with pytest.raises(StageError, match=rf"{name}: holds {np.dtype(dtype).name}, wanted floats"):
        open_model_folder(folder).check_tensors()


@pytest.mark.parametrize(("part", "dtype", "wanted"), [("weight", "i4", "32-bit words"), ("scales", "u2", "floats")])
def test_packed_parts_of_another_type_are_refused_by_name(
    toy_model: Callable[[str], Path], tmp_path: Path, part: str, dtype: str, wanted: str
) -> None:
    folder = write_packed(toy_model("llama"), tmp_path / "packed", {"group_size": 32, "bits": 4})
    file, name = open_safetensors(folder / "model.safetensors"), f"model.layers.0.mlp.up_proj.{part}"
    tensors = {own: array.astype(dtype) if own == name else array for own, array in file.tensors()}
    save(folder / "model.safetensors", tensors)
    with pytest.raises(StageError, match=f"{name}: holds u?int.., wanted {wanted}"):
        open_base(folder).check_tensors()


def save(path: Path, tensors: dict[str, Any]) -> None:
    """Write arrays of any type."""
    shapes, dtypes = ({n: a.shape for n, a in tensors.items()}, {n: a.dtype for n, a in tensors.items()})
    write_safetensors(path, shapes, tensors.items(), {}, dtypes)


def test_a_tied_head_stored_twice_is_no_fault(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, folder / "model.safetensors")
    open_model_folder(folder).check_tensors()


def test_shards_are_read_as_one(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    first = dict(list(tensors.items())[:5])
    save_file(first, folder / "model-00001-of-00002.safetensors")
    save_file({n: a for n, a in tensors.items() if n not in first}, folder / "model-00002-of-00002.safetensors")
    opened = open_model_folder(folder)
    opened.check_tensors()
    for name, array in opened.tensors():
        np.testing.assert_array_equal(array, tensors[name])
    np.testing.assert_array_equal(opened.tensor("model.norm.weight"), tensors["model.norm.weight"])


def test_bf16_is_widened_exactly(folder: Path) -> None:
    import ml_dtypes

    tensors = {n: a.astype(ml_dtypes.bfloat16) for n, a in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    for name, array in open_model_folder(folder).tensors():
        assert array.dtype == np.float32
        # the upper half of a float32 is a bfloat16
        np.testing.assert_array_equal(array.view(np.uint32) >> 16, tensors[name].view(np.uint16))
        assert not (array.view(np.uint32) & 0xFFFF).any()


def test_a_tensor_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(StageError, match=r"no tensor 'model\.gone'"):
        open_model_folder(folder).tensor("model.gone")
