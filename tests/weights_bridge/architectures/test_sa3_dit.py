"""Stable Audio 3's transformer: the table against recorded counts of the checkpoints, and both ways on made weights.

No package has the class, so the names are held against facts that were taken from it on the meta device: 438 and 522
tensors, 459.1 and 1,453.2 million parameters, 192 and 228 linear and convolution layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import call

from weights_bridge import architectures
from weights_bridge.architectures.sa3_dit import MEDIUM, SMALL, TOP, config_of
from weights_bridge.safetensors_reader import open_safetensors
from weights_bridge.safetensors_writer import write_safetensors

TABLE = architectures.get("sa3_dit")
TOY = {"model_type": "sa3_dit", "hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 256}
TOY |= {"latent_channels": 8, "condition_size": 24, "time_features": 16, "memory_tokens": 4, "differential": True}
BUFFER = "transformer.rotary_pos_emb.inv_freq"


@pytest.mark.parametrize(
    ("config", "tensors", "millions", "layers"), [(SMALL, 438, 459.1, 192), (MEDIUM, 522, 1453.2, 228)]
)
def test_tensors_parameters_and_layers_are_as_many_as_the_checkpoint_has(
    config: dict[str, Any], tensors: int, millions: float, layers: int
) -> None:
    shapes = {name: shape for name, shape in TABLE.torch_shapes(config).items() if name.startswith(TOP)}
    assert TABLE.is_dropped(TOP + BUFFER, config)
    assert len(shapes) + 1 == tensors
    assert round(sum(int(np.prod(shape)) for shape in shapes.values()) / 1e6, 1) == millions
    matrices = [name for name, shape in shapes.items() if len(shape) > 1 and not name.endswith("memory_tokens")]
    assert len(matrices) == layers


@pytest.mark.parametrize("config", [SMALL, MEDIUM, TOY], ids=["small", "medium", "toy"])
def test_the_configuration_follows_from_the_shapes(config: dict[str, Any]) -> None:
    shapes = TABLE.torch_shapes(config)
    found = config_of(shapes)
    assert found.items() >= config.items()
    assert TABLE.torch_shapes(found) == shapes


def test_mlx_names_are_those_of_the_public_files() -> None:
    """Gains are weights, the local embedding is a sequence, convolutions are (out, taps, in), the seconds are short."""
    block, names = TOP + "transformer.layers.1.", TABLE.mlx_from_torch(TOY)
    assert names[block + "self_attn.q_norm.gamma"] == "transformer.layers.1.self_attn.q_norm.weight"
    assert names[block + "to_local_embed.2.bias"] == "transformer.layers.1.to_local_embed.seq.2.bias"
    assert names[block + "ff.ff.0.proj.weight"] == "transformer.layers.1.ff.ff.0.proj.weight"
    seconds = "conditioner.conditioners.seconds_total.embedder.embedding.1."
    assert [names[seconds + part] for part in ("weight", "bias")] == [
        "cond.seconds_total_weight",
        "cond.seconds_total_bias",
    ]
    assert not [name for name in names.values() if "gamma" in name or name.startswith("model.")]
    shapes = TABLE.mlx_shapes(TOY)
    assert shapes["preprocess_conv.weight"] == (8, 1, 8)
    assert shapes["transformer.layers.1.self_attn.to_qkv.weight"] == (640, 128)
    assert shapes["cond.seconds_total_weight"] == (24, 16)


def write_model(folder: Path, dtype: Any) -> Path:
    """Write random bytes as a model, with what the checkpoint holds beside the table."""
    rng = np.random.default_rng(1)
    shapes = TABLE.torch_shapes(TOY) | {TOP + BUFFER: (16,), "pretransform.x.weight": (2, 2)}
    arrays = {name: (rng.standard_normal(shape) / 8).astype(dtype) for name, shape in shapes.items()}
    folder.mkdir()
    dtypes = dict.fromkeys(shapes, np.dtype(dtype))
    write_safetensors(folder / "model.safetensors", shapes, arrays.items(), {"format": "pt"}, dtypes)
    (folder / "config.json").write_text(json.dumps(TOY))
    return folder


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_the_command_takes_it_to_mlx_and_back_bit_by_bit(tmp_path: Path, dtype: Any) -> None:
    source = write_model(tmp_path / "source", dtype)
    for here, there, to in (("source", "mlx", "mlx"), ("mlx", "back", "torch")):
        done = call("bridge", tmp_path / here, "--to", to, "--out", tmp_path / there, "--json")
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["opened_by"] == "" and "has no class for sa3_dit" in answer["not_opened"]
        assert answer["tensors"] == len(TABLE.torch_shapes(TOY))
        assert sorted(answer["left_out"]) == ([TOP + BUFFER, "pretransform.x.weight"] if to == "mlx" else [])
    first, last = (open_safetensors(folder / "model.safetensors") for folder in (source, tmp_path / "back"))
    assert first.entries.keys() - last.entries.keys() == {TOP + BUFFER, "pretransform.x.weight"}
    assert {n: last.tensor(n).tobytes() for n in last.entries} == {n: first.tensor(n).tobytes() for n in last.entries}
    turned = open_safetensors(tmp_path / "mlx" / "model.safetensors").tensor("postprocess_conv.weight")
    straight = first.tensor(TOP + "postprocess_conv.weight")
    np.testing.assert_array_equal(turned, straight.transpose(0, 2, 1))
