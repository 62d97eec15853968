"""A model as a local Hugging Face directory: configuration, weights and tokenizer files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16, which safetensors then hands out
import numpy as np
from safetensors import SafetensorError, safe_open

from weights_bridge import architectures
from weights_bridge.architectures.table import Architecture
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
)


@dataclass(frozen=True)
class ModelFolder:
    """A model directory, opened.

    Attributes:
        path: the directory.
        config: `config.json`, normalised (see `normalised_config`).
        architecture: its table.
    """

    path: Path
    config: dict[str, Any]
    architecture: Architecture

    def weight_files(self) -> list[Path]:
        """Return the safetensors files, sorted by name.

        Raises:
            StageError: there is none.
        """
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            hint = "pickle checkpoints (.bin, .pt) are not read; convert them to safetensors first"
            raise StageError(f"{self.path}: no *.safetensors file", hint=hint)
        return files

    def tensor_names(self) -> dict[str, Path]:
        """Return tensor name to the file that holds it."""
        names: dict[str, Path] = {}
        for file in self.weight_files():
            with _opened(file) as reader:
                names |= dict.fromkeys(reader.keys(), file)
        return names

    def tensors(self, *, as_fp32: bool = True) -> Iterator[tuple[str, Array]]:
        """Yield (torch name, array) one at a time, in file order.

        Args:
            as_fp32: widen bf16 and fp16 to float32 (exact).
        """
        for file in self.weight_files():
            with _opened(file) as reader:
                for name in reader.keys():  # noqa: SIM118 - safe_open is not a mapping
                    array = reader.get_tensor(name)
                    yield name, array.astype(np.float32) if as_fp32 and array.dtype.itemsize == 2 else array

    def tensor(self, name: str) -> Array:
        """Return one tensor as float32.

        Raises:
            StageError: it is not in the directory.
        """
        file = self.tensor_names().get(name)
        if file is None:
            raise StageError(f"{self.path}: no tensor {name!r}", hint="`mlx-sentis recipe` checks a model directory")
        with _opened(file) as reader:
            return reader.get_tensor(name).astype(np.float32)

    def check_tensors(self) -> None:
        """Require every tensor of the table with its shape, and no tensor the table does not know.

        Raises:
            StageError: all mismatches at once.
        """
        wanted = self.architecture.torch_shapes(self.config)
        found: dict[str, tuple[int, ...]] = {}
        for file in self.weight_files():
            with _opened(file) as reader:
                found |= {name: tuple(reader.get_slice(name).get_shape()) for name in reader.keys()}  # noqa: SIM118
        if self.config["tie_word_embeddings"]:
            found.pop("lm_head.weight", None)  # some writers store the tied head a second time
        faults = [f"{name}: missing, wanted {wanted[name]}" for name in wanted.keys() - found.keys()]
        faults += [f"{name}: found {found[name]}, not in the table" for name in found.keys() - wanted.keys()]
        faults += [
            f"{name}: found {found[name]}, wanted {wanted[name]}"
            for name in wanted.keys() & found.keys()
            if found[name] != wanted[name]
        ]
        if faults:
            hint = f"the files must be a {self.architecture.model_type} checkpoint that matches its config.json"
            raise all_at_once(f"{self.path}: tensors do not fit the architecture:", faults, hint=hint)


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise StageError(f"{file}: not a whole safetensors file: {error}", hint="fetch or copy it again") from None


def open_model_folder(path: Path) -> ModelFolder:
    """Open a local Hugging Face directory.

    Raises:
        StageError: no such directory, no config.json, or an architecture without a table.
    """
    if not path.is_dir():
        raise StageError(f"{path}: no such model directory", hint="`mlx-sentis models list` names embedded models")
    config = normalised_config(read_json(path / "config.json"), path)
    return ModelFolder(path, config, architectures.get(config["model_type"]))


def normalised_config(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a configuration in which the rotary bases stand in both places that readers look at.

    transformers 5 writes `rope_parameters` only; mlx-lm 0.32 reads a top-level `rope_theta` (and
    `rope_local_base_freq`) only and falls back to 10000 without a word: SmolLM2's logits are then 29 % off.
    Disagreeing places are an error, not a choice.

    Args:
        config: the parsed `config.json`.
        path: named in errors.

    Raises:
        StageError: a key that every architecture needs is missing, or two places disagree.
    """
    normal = dict(config)
    needed = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    if missing := [key for key in (*needed, "num_attention_heads") if key not in normal]:
        raise all_at_once(f"{path}/config.json: keys are missing:", missing, hint="give a whole model directory")
    normal.setdefault("tie_word_embeddings", normal["model_type"] == "gemma3_text")
    normal.setdefault("num_key_value_heads", normal["num_attention_heads"])
    parameters = normal.get("rope_parameters") or {}
    nested = any(isinstance(value, dict) for value in parameters.values())
    places = {
        "rope_theta": parameters.get("full_attention", {}).get("rope_theta")
        if nested
        else parameters.get("rope_theta"),
        "rope_local_base_freq": parameters.get("sliding_attention", {}).get("rope_theta") if nested else None,
    }
    for key, value in places.items():
        if value is None:
            continue
        if normal.get(key) is not None and float(normal[key]) != float(value):
            raise StageError(
                f"{path}/config.json: {key} is {normal[key]} at the top and {value} in rope_parameters",
                hint="make the two equal: readers differ in which one they take",
            )
        normal[key] = float(value)
    if normal.get("layer_types") and "sliding_window_pattern" not in normal:
        kinds = normal["layer_types"]
        if "full_attention" in kinds:
            normal["sliding_window_pattern"] = kinds.index("full_attention") + 1
    return normal


def layer_kinds(config: dict[str, Any]) -> list[str]:
    """Return `full_attention` or `sliding_attention` for each layer."""
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        return list(config["layer_types"])
    if config["model_type"] == "gemma3_text":
        period = config.get("sliding_window_pattern", 6)
        return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    return ["full_attention"] * layers
