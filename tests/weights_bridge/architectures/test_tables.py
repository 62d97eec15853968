"""The tables against transformers' own classes, and the names against mlx-lm's own definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlx_sentis.demo.toy import DECODER_TYPES, MODEL_TYPES
from weights_bridge import architectures, layouts
from weights_bridge.architectures.table import Architecture, Tensor, same
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.model_folder import normalised_config, open_model_folder

VARIANTS = [
    *((model_type, {}) for model_type in DECODER_TYPES),
    *((model_type, {"tie_word_embeddings": tied}) for model_type in DECODER_TYPES for tied in (True, False)),
    ("llama", {"attention_bias": True}),
    ("llama", {"mlp_bias": True, "num_key_value_heads": 1}),
    ("llama", {"head_dim": 24, "num_hidden_layers": 3, "intermediate_size": 100}),
    ("qwen3", {"head_dim": 32, "num_attention_heads": 6}),
    ("phi3", {"num_key_value_heads": 1}),
    ("smollm3", {"attention_bias": True}),
]
VARIANTS.remove(("gemma2", {"tie_word_embeddings": False}))  # mlx-lm's definition has no head of its own
LINEARS = {
    "llama": {"q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64)},
    "mlp": {"gate_proj": (96, 64), "up_proj": (96, 64), "down_proj": (64, 96)},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "max_position_embeddings": 12,
        "type_vocab_size": 2,
    },
    "whisper": {
        "vocab_size": 40,
        "d_model": 16,
        "num_mel_bins": 5,
        "max_source_positions": 12,
        "max_target_positions": 9,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 20,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "pad_token_id": 0,
    },
}
LOGITS = ("llama", "mistral", "smollm3", "phi3", "gemma2")
FLOATS = [np.dtype("f4"), np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)]


def config_of(toy_model: Callable[[str], Path], model_type: str, **changes: Any) -> dict[str, Any]:
    if model_type in ENCODERS:
        config = {"model_type": model_type} | ENCODERS[model_type]
    else:
        config = json.loads((toy_model(model_type) / "config.json").read_text())
    return normalised_config(config | changes, Path("toy"))


def torch_class(config: dict[str, Any]) -> Any:
    """Return transformers' own class without weights."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, WhisperForConditionalGeneration

    settings = AutoConfig.for_model(**config)
    with torch.device("meta"):
        if config["model_type"] == "whisper":
            return WhisperForConditionalGeneration(settings)
        return (AutoModel if config["model_type"] == "bert" else AutoModelForCausalLM).from_config(settings)


def mlx_definition(table: Architecture, config: dict[str, Any]) -> Any:
    from mlx_sentis.training.mlx_lm_models import models_module

    definition = models_module(table.mlx_lm_module)
    return definition.Model(definition.ModelArgs.from_dict(config))


@pytest.mark.parametrize(("model_type", "changes"), [*VARIANTS, *((name, {}) for name in ENCODERS)])
def test_names_and_shapes_are_those_of_transformers_own_class(
    toy_model: Callable[[str], Path], model_type: str, changes: dict[str, Any]
) -> None:
    config, table = config_of(toy_model, model_type, **changes), architectures.get(model_type)
    wanted = {name: tuple(tensor.shape) for name, tensor in torch_class(config).state_dict().items()}
    wanted = {name: shape for name, shape in wanted.items() if not table.is_dropped(name, config)}
    assert table.torch_shapes(config) == wanted


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_mlx_names_are_the_parameters_of_mlx_lms_definition(
    toy_model: Callable[[str], Path], model_type: str, changes: dict[str, Any]
) -> None:
    from mlx.utils import tree_flatten

    config, table = config_of(toy_model, model_type, **changes), architectures.get(model_type)
    network = mlx_definition(table, config)
    found = {name: tuple(array.shape) for name, array in tree_flatten(network.parameters())}
    if config["tie_word_embeddings"]:
        found.pop("lm_head.weight", None)  # gemma3's definition makes one and drops it when weights are loaded
    assert table.mlx_shapes(config) == found


@pytest.mark.parametrize("model_type", DECODER_TYPES)
def test_the_head_is_tied_by_default_where_transformers_ties_it(model_type: str) -> None:
    from transformers import AutoConfig

    assert AutoConfig.for_model(model_type).tie_word_embeddings == architectures.get(model_type).tied


@pytest.mark.parametrize("model_type", [*DECODER_TYPES, *ENCODERS])
def test_names_go_to_mlx_and_back(toy_model: Callable[[str], Path], model_type: str) -> None:
    table, config = architectures.get(model_type), config_of(toy_model, model_type)
    table.check_names()
    there, back = table.mlx_from_torch(config), table.torch_from_mlx(config)
    assert len(there) == len(back) == len(table.torch_shapes(config))
    assert {name: back[mlx] for name, mlx in there.items()} == {name: name for name in table.torch_shapes(config)}


def random_bits(shapes: dict[str, tuple[int, ...]], dtype: np.dtype[Any]) -> dict[str, Array]:
    """Return arrays of random bytes, so that NaN payloads and denormals are among them."""
    rng = np.random.default_rng(1)
    return {
        name: np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("model_type", "traditional"),
    [*((name, False) for name in (*DECODER_TYPES, *ENCODERS)), *((n, True) for n in DECODER_TYPES if n != "phi3")],
)
def test_tensors_go_to_mlx_and_back_bit_by_bit(
    toy_model: Callable[[str], Path], model_type: str, traditional: bool, dtype: np.dtype[Any]
) -> None:
    table, config = architectures.get(model_type), config_of(toy_model, model_type, rope_traditional=traditional)
    weights = random_bits(table.torch_shapes(config), dtype)
    mlx = dict(table.mlx_tensors(config, weights.__getitem__))
    assert {name: array.shape for name, array in mlx.items()} == table.mlx_shapes(config)
    assert {array.dtype for array in mlx.values()} == {dtype}
    back = dict(table.torch_tensors(config, mlx.__getitem__))
    assert {name: a.tobytes() for name, a in back.items()} == {name: a.tobytes() for name, a in weights.items()}


def test_only_the_coordinates_that_are_rotated_are_dealt_out(toy_model: Callable[[str], Path]) -> None:
    config = config_of(toy_model, "llama", rope_traditional=True, partial_rotary_factor=0.5)
    table, name = architectures.get("llama"), "model.layers.0.self_attn.k_proj.weight"
    weights = random_bits(table.torch_shapes(config), FLOATS[0])
    order = [0, 4, 1, 5, 2, 6, 3, 7, *range(8, 16)]  # of 16 coordinates of a head, the first 8 are rotated
    found = dict(table.mlx_tensors(config, weights.__getitem__))[name]
    assert found[16:].tobytes() == weights[name][16:][order].tobytes()


@pytest.mark.parametrize(
    ("model_type", "traditional"),
    [*((name, False) for name in LOGITS), *((name, True) for name in LOGITS if name != "phi3")],
)
def test_logits_of_mlx_lms_definition_are_torchs_through_the_table(
    toy_model: Callable[[str], Path], model_type: str, traditional: bool
) -> None:
    """150 tokens; `traditional` pairs neighbouring coordinates on MLX's side, so that the rows must be dealt out.

    Of Gemma 2 as many as its window holds: mlx-lm's own definition slides in no layer.
    """
    import mlx.core as mx
    import torch
    from transformers import AutoModelForCausalLM

    folder = open_model_folder(toy_model(model_type))
    config = folder.config | {"rope_traditional": traditional}
    network = mlx_definition(folder.architecture, config)
    weights = folder.architecture.mlx_tensors(config, folder.tensor)
    network.load_weights([(name, mx.array(array)) for name, array in weights], strict=True)
    tokens = config["sliding_window"] if model_type == "gemma2" else 150
    ids = np.random.default_rng(0).integers(0, config["vocab_size"], (1, tokens))
    reference: Any = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float64)
    with torch.no_grad():
        wanted = reference.eval()(torch.from_numpy(ids)).logits.numpy()
    found = np.array(network(mx.array(ids)))
    noise_db = 20 * np.log10(np.abs(wanted).max() / np.sqrt(np.mean(np.square(found - wanted))))
    assert noise_db > 110


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_linears_are_seven_a_layer_and_never_head_or_table(
    toy_model: Callable[[str], Path], model_type: str
) -> None:
    found = architectures.get(model_type).linear_modules(config_of(toy_model, model_type))
    wanted = {
        f"model.layers.{i}.{part}.{name}": shape
        for i in range(2)
        for part, linears in (("self_attn", LINEARS["llama"]), ("mlp", LINEARS["mlp"]))
        for name, shape in linears.items()
    }
    assert found == wanted


def test_a_fused_matrix_is_split_where_the_mlx_side_has_its_parts(toy_model: Callable[[str], Path]) -> None:
    import dataclasses

    config = config_of(toy_model, "phi3")
    q, k, v = (
        ("model.layers.{i}.self_attn." + name + ".weight", letter) for name, letter in zip("qkv", "QKK", strict=True)
    )
    rows = tuple(
        dataclasses.replace(row, parts=(q, k, v)) if "qkv" in row.torch else row
        for row in architectures.get("phi3").tensors
    )
    table = dataclasses.replace(architectures.get("phi3"), tensors=rows)
    table.check_names()
    weights = random_bits(table.torch_shapes(config), FLOATS[2])
    mlx = dict(table.mlx_tensors(config, weights.__getitem__))
    assert {name: array.shape for name, array in mlx.items()} == table.mlx_shapes(config)
    fused = weights["model.layers.1.self_attn.qkv_proj.weight"]
    assert mlx["model.layers.1.self_attn.k.weight"].tobytes() == fused[64:96].tobytes()
    back = dict(table.torch_tensors(config, mlx.__getitem__))
    assert {name: a.tobytes() for name, a in back.items()} == {name: a.tobytes() for name, a in weights.items()}


def test_a_table_with_a_name_twice_is_refused() -> None:
    for rows in (("a", "b"), ("a", "c")), (("a", "b"), ("c", "b")):
        table = Architecture("x", "causal_lm", tuple(Tensor(torch, mlx, "H") for torch, mlx in rows))
        with pytest.raises(StageError, match="stands 2 times"):
            table.check_names()
    Architecture("x", "causal_lm", (same("a", "H"), same("b", "H"))).check_names()


def test_what_is_left_out_has_its_reason(toy_model: Callable[[str], Path]) -> None:
    llama, config = architectures.get("llama"), config_of(toy_model, "llama")
    assert "tied" in llama.is_dropped("lm_head.weight", config)
    assert not llama.is_dropped("lm_head.weight", config | {"tie_word_embeddings": False})
    assert "frequencies" in llama.is_dropped("model.layers.3.self_attn.rotary_emb.inv_freq", config)
    assert not llama.is_dropped("model.norm.weight", config)
    assert "buffer" in architectures.get("bert").is_dropped("embeddings.position_ids", {})


def test_an_unknown_architecture_lists_the_known_and_the_nearest() -> None:
    assert architectures.names() == sorted([*DECODER_TYPES, *ENCODERS, "sa3_dit"])
    with pytest.raises(StageError) as caught:
        architectures.get("gemma3text")
    assert caught.value.message == "unknown architecture (config.json model_type) 'gemma3text'"
    assert caught.value.hint.startswith("did you mean gemma3_text? known: bert, gemma2, gemma3_text, llama")


def test_a_module_beside_the_tables_is_no_architecture() -> None:
    with pytest.raises(StageError):
        architectures.get("table")


@pytest.mark.parametrize("layout", layouts.MLX_AXES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts_go_to_mlx_and_back_bit_by_bit(layout: str, dtype: np.dtype[Any]) -> None:
    shape = (2, 3, 5, 7)[: len(layouts.MLX_AXES[layout]) or 2]
    array = random_bits({"x": shape}, dtype)["x"]
    there = layouts.mlx_from_torch(array, layout)
    assert there.shape == layouts.mlx_shape(shape, layout) and there.flags.c_contiguous
    assert layouts.torch_from_mlx(there, layout).tobytes() == array.tobytes()
