"""A model as a local Hugging Face directory: configuration, weights and tokenizer files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weights_bridge import architectures
from weights_bridge.architectures.table import Architecture
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json
from weights_bridge.model_config import QUANTISED, layer_kinds, normalised_config
from weights_bridge.quantisation import Packing, dequantised, packing_of
from weights_bridge.safetensors_reader import SafetensorsFile, is_of
from weights_bridge.weight_files import open_weights, require_inside, weight_files

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    *("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model"),  # of tokenizers by their kinds
    "normalizer.json",
    *("preprocessor_config.json", "processor_config.json"),  # of speech models
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
    "generation_config.json",
)


Origin = Literal["torch", "mlx"]


@dataclass(frozen=True)
class ModelFolder:
    """A model directory, opened.

    Attributes:
        path: the directory.
        config: `config.json`, normalised (see `normalised_config`).
        architecture: its table.
        origin: whose names, layouts and packing its files follow; what is read bears torch's names all the same.
    """

    path: Path
    config: dict[str, Any]
    architecture: Architecture
    origin: Origin = "torch"

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

    def torch_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name to shape of what `tensors` yields; of a torch directory that is what its files hold."""
        return self.shapes() if self.origin == "torch" else self.architecture.torch_shapes(self.config)

    def tensors(self, *, as_fp32: bool = True) -> Iterator[tuple[str, Array]]:
        """Yield (torch name, array) one at a time, of a torch directory in file order.

        Args:
            as_fp32: widen bf16 and fp16 to float32 (exact), and dequantise packed weights there (see `mlx_tensor`).
        """
        if self.origin == "torch":
            for name, file in self.stored.items():
                yield name, file.wide_tensor(name) if as_fp32 else file.tensor(name)
            return
        for name, array in self.architecture.torch_tensors(
            self.config, lambda name: self.mlx_tensor(name, wide=as_fp32)
        ):
            yield name, array.astype(np.float32) if as_fp32 and array.dtype.itemsize == 2 else array

    def tensor(self, name: str) -> Array:
        """Return one tensor of a torch directory as float32.

        Raises:
            StageError: it is not in the directory.
        """
        return self._stored(name).wide_tensor(name).astype(np.float32, copy=False)

    def mlx_tensor(self, name: str, *, wide: bool = False) -> Array:
        """Return one tensor of an MLX directory in MLX's layout, dequantised where it is packed.

        Args:
            name: MLX's.
            wide: compute scale · integer + bias in float32, as the trainer does, also where the scales are of a half
                type; without it the weights come in the scales' type, bit-equal to `mx.dequantize`.

        Raises:
            StageError: it or one of its parts is not in the directory.
        """
        array = self._stored(name).tensor(name)
        packing = self.packing(name)
        if packing is None:
            return array
        module = name.removesuffix("weight")
        parts = {part: self._stored(module + part).tensor(module + part) for part in packing.part_shapes((1, 1))}
        if wide and packing.mode == "affine":
            parts = {part: stored.astype(np.float32) for part, stored in parts.items()}
        return dequantised(array, parts["scales"], parts.get("biases"), packing)

    def require_plain(self, *keys: str) -> None:
        """Refuse a torch directory whose configuration says what only MLX writes.

        Raises:
            StageError: it does, with the way out.
        """
        found = [key for key in keys if self.config.get(key)]
        if found and self.origin == "torch":
            hint = f"`mlx-sentis bridge {self.path} --to torch --out NEW` dequantises and reorders what MLX wrote"
            if method := (self.config.get("quantization_config") or {}).get("quant_method"):
                hint = f"weights packed by {method} are not read: get the model's plain ones"
            raise StageError(f"{self.path}/config.json: {' and '.join(found)}: not plain torch weights", hint=hint)

    def packing(self, name: str) -> Packing | None:
        """Return how an MLX directory packs a tensor, None when it does not."""
        module = name.removesuffix(".weight")
        return packing_of(self.config, module) if f"{module}.scales" in self.stored and name != module else None

    def _stored(self, name: str) -> SafetensorsFile:
        if name not in self.stored:
            raise StageError(f"{self.path}: no tensor {name!r}", hint="`mlx-sentis recipe` checks a model directory")
        return self.stored[name]

    def wanted_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return what the files must hold: name to shape by the table, in this directory's own names and packing."""
        if self.origin == "torch":
            return self.architecture.torch_shapes(self.config)
        wanted: dict[str, tuple[int, ...]] = {}
        for name, shape in self.architecture.mlx_shapes(self.config).items():
            packing = self.packing(name)
            wanted[name] = shape if packing is None else packing.packed_shape(shape)
            parts = {} if packing is None else packing.part_shapes(shape)
            wanted |= {f"{name.removesuffix('weight')}{part}": side for part, side in parts.items()}
        return wanted

    def wanted_type(self, name: str) -> str:
        """Return what kind of numbers a tensor of the files holds: a key of `safetensors_reader.KINDS_OF_NUMBERS`."""
        module, _, part = name.rpartition(".")
        packing = self.packing(f"{module}.weight") if self.origin == "mlx" else None
        if packing is None or part == "bias":
            return "floats"
        if part == "weight":
            return "32-bit words"
        return "floats" if packing.mode == "affine" else "bytes"

    def check_tensors(self, *, values: bool = False) -> None:
        """Require every tensor of the table with its shape, and no tensor the table does not know.

        Args:
            values: read every tensor too, and refuse NaN and infinities.

        Raises:
            StageError: all mismatches at once.
        """
        self.require_plain(*QUANTISED)
        wanted, config = self.wanted_shapes(), self.config
        found = {name: shape for name, shape in self.shapes().items() if not self.architecture.is_dropped(name, config)}
        faults = [f"{name}: missing, wanted {wanted[name]}" for name in wanted.keys() - found.keys()]
        faults += [f"{name}: found {found[name]}, not in the table" for name in found.keys() - wanted.keys()]
        faults += [
            f"{name}: found {found[name]}, wanted {wanted[name]}"
            for name in wanted.keys() & found.keys()
            if found[name] != wanted[name]
        ]
        faults += [
            f"{name}: holds {self.stored[name].entries[name].dtype}, wanted {kind}"
            for name in wanted.keys() & found.keys()
            if not is_of(self.stored[name].entries[name].dtype, kind := self.wanted_type(name))
        ]
        if values:
            faults += [f"{name}: holds NaN or infinities" for name, f in self.stored.items() if not f.is_finite(name)]
        if faults:
            hint = f"the files must be a {self.architecture.model_type} checkpoint that matches its config.json"
            raise all_at_once(f"{self.path}: tensors do not fit the architecture:", faults, hint=hint)


def require_stage(folder: ModelFolder, stage: str) -> None:
    """Require that a stage covers a directory's architecture.

    Raises:
        StageError: it does not.
    """
    known = folder.architecture
    if stage not in known.stages:
        hint = f"it is covered by {', '.join(known.stages)}; `mlx-sentis families` shows them all"
        raise StageError(f"{folder.path}: `{stage}` does not cover {known.model_type}", hint=hint)


def open_model_folder(path: Path, *, origin: Origin = "torch") -> ModelFolder:
    """Open a local Hugging Face directory.

    Args:
        path: the directory.
        origin: `mlx` for a directory that MLX wrote, whose layouts, rotary rows and packing may differ.

    Raises:
        StageError: no such directory, no config.json, an architecture without a table, or, for torch, what only an
            MLX directory can hold.
    """
    if not path.is_dir():
        raise StageError(f"{path}: no such model directory", hint="`mlx-sentis models list` names embedded models")
    config = normalised_config(read_json(require_inside(path, "config.json")), path)
    try:
        architecture = architectures.get(config["model_type"])
    except StageError as error:
        raise StageError(f"{path}/config.json: {error.message}", hint=error.hint) from None
    if architecture.family == "causal_lm" and not architecture.sliding and "sliding_attention" in layer_kinds(config):
        hint = "mlx-lm's definition attends to everything in every layer; set use_sliding_window to false"
        raise StageError(
            f"{path}/config.json: {architecture.model_type} with sliding layers is not supported", hint=hint
        )
    folder = ModelFolder(path, config, architecture, origin)
    if config.get("rope_traditional"):
        folder.require_plain("rope_traditional")
    return folder


def open_base(path: Path) -> ModelFolder:
    """Open a directory as the base of a training: one whose weights MLX packed is read as MLX wrote it.

    Raises:
        StageError: as `open_model_folder`; or a packing that MLX does not have.
    """
    folder = open_model_folder(path)
    return open_model_folder(path, origin="mlx") if packing_of(folder.config) else folder
