"""A model as a local Hugging Face directory: configuration, weights and tokenizer files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge import architectures
from weights_bridge.architectures.table import Architecture
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json
from weights_bridge.safetensors_reader import SafetensorsFile
from weights_bridge.weight_files import open_weights, weight_files

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

    @cached_property
    def stored(self) -> dict[str, SafetensorsFile]:
        """Tensor name to the checked file that holds it, in file order.

        Raises:
            StageError: files are missing, damaged or not to be trusted; all faults at once.
        """
        return open_weights(self.path)

    def weight_files(self) -> list[Path]:
        """Return the safetensors files, sorted by name.

        Raises:
            StageError: there is none, one is missing, or one lies outside of the directory.
        """
        return weight_files(self.path)

    def tensor_names(self) -> dict[str, Path]:
        """Return tensor name to the file that holds it."""
        return {name: file.path for name, file in self.stored.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return tensor name to shape, from the headers alone."""
        return {name: file.entries[name].shape for name, file in self.stored.items()}

    def tensors(self, *, as_fp32: bool = True) -> Iterator[tuple[str, Array]]:
        """Yield (torch name, array) one at a time, in file order.

        Args:
            as_fp32: widen bf16 and fp16 to float32 (exact).
        """
        for name, file in self.stored.items():
            array = file.tensor(name)
            yield name, array.astype(np.float32) if as_fp32 and array.dtype.itemsize == 2 else array

    def tensor(self, name: str) -> Array:
        """Return one tensor as float32.

        Raises:
            StageError: it is not in the directory.
        """
        if name not in self.stored:
            raise StageError(f"{self.path}: no tensor {name!r}", hint="`mlx-sentis recipe` checks a model directory")
        return self.stored[name].tensor(name).astype(np.float32)

    def check_tensors(self, *, values: bool = False) -> None:
        """Require every tensor of the table with its shape, and no tensor the table does not know.

        Args:
            values: read every tensor too, and refuse NaN and infinities.

        Raises:
            StageError: all mismatches at once.
        """
        wanted, found = self.architecture.torch_shapes(self.config), self.shapes()
        if self.config["tie_word_embeddings"]:
            found.pop("lm_head.weight", None)  # some writers store the tied head a second time
        faults = [f"{name}: missing, wanted {wanted[name]}" for name in wanted.keys() - found.keys()]
        faults += [f"{name}: found {found[name]}, not in the table" for name in found.keys() - wanted.keys()]
        faults += [
            f"{name}: found {found[name]}, wanted {wanted[name]}"
            for name in wanted.keys() & found.keys()
            if found[name] != wanted[name]
        ]
        if values:
            faults += [f"{name}: holds NaN or infinities" for name, f in self.stored.items() if not f.is_finite(name)]
        if faults:
            hint = f"the files must be a {self.architecture.model_type} checkpoint that matches its config.json"
            raise all_at_once(f"{self.path}: tensors do not fit the architecture:", faults, hint=hint)


def open_model_folder(path: Path) -> ModelFolder:
    """Open a local Hugging Face directory.

    Raises:
        StageError: no such directory, no config.json, or an architecture without a table.
    """
    if not path.is_dir():
        raise StageError(f"{path}: no such model directory", hint="`mlx-sentis models list` names embedded models")
    config = normalised_config(read_json(path / "config.json"), path)
    try:
        architecture = architectures.get(config["model_type"])
    except StageError as error:
        raise StageError(f"{path}/config.json: {error.message}", hint=error.hint) from None
    if not architecture.sliding and "sliding_attention" in layer_kinds(config):
        hint = "mlx-lm's definition attends to everything in every layer; set use_sliding_window to false"
        raise StageError(
            f"{path}/config.json: {architecture.model_type} with sliding layers is not supported", hint=hint
        )
    return ModelFolder(path, config, architecture)


def normalised_config(config: Any, path: Path) -> dict[str, Any]:
    """Return a configuration that says in one way what its readers look for in several places.

    transformers 5 writes `rope_parameters` only; mlx-lm 0.32 reads a top-level `rope_theta`, `rope_scaling` (and
    `rope_local_base_freq`) only and falls back to a default without a word: SmolLM2's logits are then 29 % off.
    Where neither is given, transformers' default holds (10000; mlx-lm's for qwen2 is 1000000).
    Disagreeing places are an error, not a choice.

    Args:
        config: the parsed `config.json`.
        path: named in errors.

    Raises:
        StageError: a key that every architecture needs is missing or no number, or two places disagree.
    """
    file = f"{path}/config.json"
    _check_keys(config, file)
    normal = dict(config)
    normal.setdefault("tie_word_embeddings", normal["model_type"] == "gemma3_text")
    if normal.get("num_key_value_heads") is None:
        normal["num_key_value_heads"] = normal["num_attention_heads"]
    normal.setdefault("rms_norm_eps", 1e-6)
    _settle_rope(normal, file)
    _settle_layers(normal, file)
    return normal


def _check_keys(config: Any, file: str) -> None:
    hint = "give a whole model directory"
    if not isinstance(config, dict):
        raise StageError(f"{file}: not a JSON object", hint=hint)
    needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    if missing := [key for key in ("model_type", *needed) if key not in config]:
        raise all_at_once(f"{file}: keys are missing:", missing, hint=hint)
    optional = [key for key in ("num_key_value_heads", "head_dim") if config.get(key) is not None]
    if faults := [
        f"{key}: found {config[key]!r}, wanted a whole number above 0"
        for key in (*needed, *optional)
        if type(config[key]) is not int or config[key] < 1
    ]:
        raise all_at_once(f"{file}: values make no sense:", faults, hint=hint)


def _settle_rope(normal: dict[str, Any], file: str) -> None:
    """Put the rotary bases and the scaling where mlx-lm looks for them."""
    parameters = normal.get("rope_parameters") or {}
    if not isinstance(parameters, dict):
        raise StageError(f"{file}: rope_parameters is not an object", hint="give a whole model directory")
    by_kind = {kind: value for kind, value in parameters.items() if isinstance(value, dict)}
    full = by_kind.get("full_attention", {}) if by_kind else parameters
    _settle(normal, "rope_theta", full.get("rope_theta"), file)
    _settle(normal, "rope_local_base_freq", by_kind.get("sliding_attention", {}).get("rope_theta"), file)
    if full.get("rope_type", "default") != "default":
        _settle(normal, "rope_scaling", {key: full[key] for key in full if key != "rope_theta"}, file)
    if normal["model_type"] != "gemma3_text":  # mlx-lm's defaults for Gemma 3 are transformers' own
        normal.setdefault("rope_theta", 10000.0)


def _settle(normal: dict[str, Any], key: str, nested: Any, file: str) -> None:
    if nested is None:
        return
    stated = normal.get(key)
    if stated is not None and _comparable(stated) != _comparable(nested):
        raise StageError(
            f"{file}: {key} is {stated} at the top and {nested} in rope_parameters",
            hint="make the two equal: readers differ in which one they take",
        )
    normal[key] = nested if isinstance(nested, dict) else float(nested)


def _comparable(value: Any) -> Any:
    if not isinstance(value, dict):
        return float(value)
    return {"rope_type" if key == "type" else key: v for key, v in value.items() if key != "rope_theta"}


def _settle_layers(normal: dict[str, Any], file: str) -> None:
    """Give Gemma 3 the period that mlx-lm reads, when its list of layers has one."""
    kinds = normal.get("layer_types")
    if not kinds or normal["model_type"] != "gemma3_text":
        return
    period = kinds.index("full_attention") + 1 if "full_attention" in kinds else len(kinds) + 1
    periodic = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(len(kinds))]
    if kinds != periodic or normal.get("sliding_window_pattern", period) != period:
        stated = normal.get("sliding_window_pattern", "not given")
        raise StageError(
            f"{file}: layer_types {kinds} do not repeat with one period (sliding_window_pattern {stated})",
            hint="mlx-lm's definition knows only every n-th layer as full attention",
        )
    normal["sliding_window_pattern"] = period


def layer_kinds(config: dict[str, Any]) -> list[str]:
    """Return `full_attention` or `sliding_attention` for each layer."""
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        return list(config["layer_types"])
    if config["model_type"] == "gemma3_text":
        period = config.get("sliding_window_pattern", 6)
        return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    return ["full_attention"] * layers
