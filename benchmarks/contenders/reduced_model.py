"""A model directory cut to its first layers, so that the stock exporter ends in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_sentis.catalogue import resolve_model
from weights_bridge.files import read_json, write_json
from weights_bridge.model_folder import ModelFolder, normalised_config, open_model_folder
from weights_bridge.safetensors_writer import write_safetensors


def measure(model: str, layers: int, out: str) -> dict[str, Any]:
    """Return the directory to export, how many layers it has and how many the model has.

    Args:
        model: a catalogue name, a directory or a hub id.
        layers: how many to keep; 0 keeps all and writes nothing.
        out: where a cut model goes.
    """
    folder = open_model_folder(resolve_model(model))
    whole = folder.config["num_hidden_layers"]
    kept = min(layers, whole) if layers else whole
    path = folder.path if kept == whole else write_reduced(folder, kept, Path(out))
    return {"path": str(path), "layers": kept, "of": whole}


def write_reduced(folder: ModelFolder, layers: int, out: Path) -> Path:
    """Write the first layers with embedding, norm and head as a model directory in fp32, and return it."""
    config = read_json(folder.path / "config.json") | {"num_hidden_layers": layers}
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:layers]
    wanted = folder.architecture.torch_shapes(normalised_config(config, out))
    shapes = {name: wanted[name] for name in folder.tensor_names() if name in wanted}
    out.mkdir(parents=True)
    write_json(out / "config.json", config)
    tensors = ((name, array) for name, array in folder.tensors() if name in shapes)
    write_safetensors(out / "model.safetensors", shapes, tensors)
    return out
