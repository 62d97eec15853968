"""Merging an adapter into a model and writing the directory, or rewriting a made model of any size."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_file import read_adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.compare import Array
from weights_bridge.files import folder_written_whole
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.run_folder import peak_memory_gib
from weights_bridge.safetensors_writer import write_safetensors

RANK, ALPHA = 16, 16.0


def measure(model: str, work: str, kind: str = "dora") -> dict[str, Any]:
    """Return seconds, sizes and what the process held before and at its peak, in GiB.

    Args:
        model: a model directory.
        work: a folder for adapter and result.
        kind: of the made adapter.
    """
    base = open_model_folder(Path(model))
    adapter = write_made_adapter(Path(work) / "adapter.safetensors", model, kind)
    before = peak_memory_gib()
    began = time.perf_counter()
    effect = write_merged(base, read_adapter(adapter), Path(work) / "merged", [2])
    seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in base.weight_files())
    written = sum(file.stat().st_size for file in (Path(work) / "merged").iterdir())
    largest = max(array.nbytes for _, array in base.tensors(as_fp32=False))
    figures = {"seconds": round(seconds, 2), "model_gib": size / 2**30, "written_gib": written / 2**30}
    return figures | {"before_gib": before, "largest_gib": largest / 2**30, "kept": effect.kept}


def write_made_adapter(path: Path, model: str, kind: str) -> Path:
    """Write an adapter of made values on every Linear of the layers."""
    base, rng = open_model_folder(Path(model)), np.random.default_rng(0)
    modules = base.architecture.linear_modules(base.config)
    tensors: dict[str, Array] = {}
    for module, (out, width) in modules.items():
        for part, shape in KINDS[kind].shapes(out, width, RANK).items():
            tensors[f"{module}.{part}"] = (0.01 * rng.standard_normal(shape) + ("magnitude" in part)).astype(np.float32)
    scale = KINDS[kind].scale(RANK, ALPHA)
    facts = {"type": kind, "rank": RANK, "alpha": ALPHA, "scale": scale, "targets": list(modules)}
    shapes = {name: array.shape for name, array in tensors.items()}
    write_safetensors(path, shapes, tensors.items(), {"adapter": json.dumps(facts)})
    return path


def write_made_model(out: Path, layers: int, width: int, shard_bytes: int) -> int:
    """Write a llama of made bf16 weights in shards, and return its size in bytes; one layer's values serve all."""
    import ml_dtypes

    from weights_bridge import architectures
    from weights_bridge.files import write_json
    from weights_bridge.safetensors_writer import write_model

    config = {"model_type": "llama", "vocab_size": 8192, "hidden_size": width, "intermediate_size": 4 * width}
    config |= {"num_hidden_layers": layers, "num_attention_heads": width // 64, "num_key_value_heads": width // 64}
    config |= {"tie_word_embeddings": True, "rope_theta": 10000.0, "rms_norm_eps": 1e-5}
    shapes = architectures.get("llama").torch_shapes(config)
    half = np.dtype(ml_dtypes.bfloat16)
    made: dict[tuple[int, ...], Array] = {}

    def array(shape: tuple[int, ...]) -> Array:
        if shape not in made:
            made[shape] = (np.random.default_rng(0).standard_normal(shape, np.float32) / 50).astype(half)
        return made[shape]

    with folder_written_whole(out) as new:
        tensors = ((name, array(shape)) for name, shape in shapes.items())
        write_model(new, shapes, tensors, dict.fromkeys(shapes, half), shard_bytes)
        write_json(new / "config.json", config)
    return sum(file.stat().st_size for file in out.glob("*.safetensors"))
