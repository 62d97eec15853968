"""The interchange file from MLX's side: writing it, and loading it into a model that has its adapters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import mlx.core as mx
import numpy as np

from mlx_sentis.training.adapters.model import (
    adapted_modules,
    adapter_tensors,
    add_adapters,
    alphas_of,
    ranks_of,
    train_everything,
)
from mlx_sentis.training.definitions import CausalLM
from weights_bridge.adapter_file import naming_scheme, read_adapter, saved_names
from weights_bridge.adapter_kinds import FULL, kind_of
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import sha256_of
from weights_bridge.model_folder import ModelFolder
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.settings import AdapterSettings, Settings


@dataclass(frozen=True)
class AdapterFacts:
    """What the interchange file says of itself.

    Attributes:
        type: the kind, or `full`.
        rank, alpha, scale: r, alpha and s of every module that `ranks` and `alphas` do not name.
        norm: whether gradients flow through the norms (`attached`) or not (`detached`).
        dropout: of the adapter's input while it was trained.
        targets: the trained modules; of a full fine-tune, the tensors.
        base: weight file name to SHA-256 of what it was trained on.
        quantised: how the frozen weights were quantised while it was trained. It is merged into the full ones.
    """

    type: str
    rank: int
    alpha: float
    scale: float
    norm: str
    dropout: float
    targets: list[str]
    ranks: dict[str, int] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    quantised: str = "no"

    @property
    def name(self) -> str:
        """The kind in words, with its rank."""
        if self.type == FULL:
            return "all weights"
        ranks = sorted(
            {self.rank, *self.ranks.values()} if len(self.ranks) < len(self.targets) else {*self.ranks.values()}
        )
        form = f"{self.quantised} bits" if self.quantised.isdecimal() else self.quantised
        on = "" if self.quantised == "no" else f", frozen weights at {form},"
        return f"{self.type} of rank {', '.join(map(str, ranks))}{on}"

    @property
    def noun(self) -> str:
        """What `targets` lists."""
        return "tensor" if self.type == FULL else "module"


def facts_of(settings: AdapterSettings, names: list[str], base: Mapping[str, str] | None = None) -> AdapterFacts:
    """Return what to write beside the tensors.

    Args:
        settings: what `add_adapters` was given.
        names: what it returned.
        base: weight file name to SHA-256 of the base model.
    """
    kind, rank, alpha = kind_of(settings.type), settings.rank, settings.alpha
    return AdapterFacts(
        type=kind.name,
        rank=rank,
        alpha=alpha,
        scale=kind.scale(rank, alpha),
        norm=settings.norm,
        dropout=settings.dropout,
        targets=names,
        ranks=ranks_of(settings, names),
        alphas=alphas_of(settings, names),
        base=dict(base or {}),
        quantised=settings.quantise,
    )


def base_hashes(folder: ModelFolder) -> dict[str, str]:
    """Return weight file name to SHA-256 of a model directory."""
    return {file.name: sha256_of(file) for file in folder.weight_files()}


def prepare_training(model: CausalLM, settings: Settings) -> AdapterFacts:
    """Make a model trainable as the settings say: its own weights (`train.full`) or an adapter.

    Returns:
        What the interchange file will say of itself, with the names of all that is trained.

    Raises:
        StageError: a pattern matches nothing, or a layer does not take this kind or rank.
    """
    base = base_hashes(model.folder)
    if settings.train.full:
        return AdapterFacts(FULL, 0, 0.0, 1.0, "detached", 0.0, train_everything(model), base=base)
    return facts_of(settings.adapter, add_adapters(model, settings.adapter, settings.train.seed), base)


def put_on(model: CausalLM, path: Path) -> AdapterFacts:
    """Put a trained adapter, or all weights of a full fine-tune, on its freshly loaded base model, unmerged.

    The base stays in full precision, as in the merged model, also where the adapter was trained on quantised weights.

    Raises:
        StageError: the file is no adapter of this model.
    """
    found = read_adapter(path).facts
    facts = AdapterFacts(**{key: found[key] for key in AdapterFacts.__dataclass_fields__ if key in found})
    if facts.type == FULL:
        train_everything(model)
    else:
        add_adapters(model, settings_of(facts), seed=0, find_bases=False)
    load_adapter(model, path)
    return facts


def settings_of(facts: AdapterFacts) -> AdapterSettings:
    """Return settings that make the same adapter again: every module by its own name."""
    return AdapterSettings(
        type=facts.type,  # pyright: ignore[reportArgumentType] - `read_adapter` checked it
        rank=facts.rank,
        alpha=facts.alpha,
        targets=facts.targets,
        rank_pattern=dict(facts.ranks),
        alpha_pattern=dict(facts.alphas),
        dropout=facts.dropout,
        norm=facts.norm,  # pyright: ignore[reportArgumentType]
    )


def file_tensors(model: CausalLM) -> dict[str, mx.array]:
    """Return name to array of everything the interchange file holds, sorted by name.

    The trained tensors and the fixed bases of the -XS kinds; of a full fine-tune all weights by their torch names.
    """
    modules = list(adapted_modules(model.network))
    if not modules:
        torch_names = model.folder.architecture.torch_from_mlx(model.folder.config)
        return {torch_names[name]: array for name, array in adapter_tensors(model).items()}
    tensors = {f"{name}.{part}": module[part] for name, module in modules for part in module.kind.parts}
    return dict(sorted(tensors.items()))


def save_adapter(path: Path, model: CausalLM, facts: AdapterFacts) -> None:
    """Write the interchange file: `<torch module>.<tensor>`, fp32, facts in the metadata."""
    tensors = {name: np.array(array, np.float32) for name, array in file_tensors(model).items()}
    shapes = {name: array.shape for name, array in tensors.items()}
    write_safetensors(path, shapes, tensors.items(), {"adapter": json.dumps(asdict(facts))})


def load_adapter(model: CausalLM, path: Path) -> None:
    """Put an interchange file's tensors into a model that already has its adapters.

    Raises:
        StageError: names or shapes differ, all at once; or none matches, with whose naming it is.
    """
    found: dict[str, mx.array] = mx.load(str(path))  # pyright: ignore
    mlx_names = model.folder.architecture.mlx_from_torch(model.folder.config)
    saved = [(mlx_names[name], found.pop(name)) for name in saved_names(path)]  # whole tensors, not trained here
    wanted = file_tensors(model)
    if not wanted.keys() & found.keys():
        scheme = naming_scheme(found)
        nearest = f"; nearest naming scheme: {scheme}" if scheme else ""
        hint = "give the adapter.safetensors of a checkpoint that `train` wrote"
        raise StageError(f"{path}: 0 of {len(found)} keys match{nearest}", hint=hint)
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: not in this model" for name in found.keys() - wanted.keys()]
    faults += [
        f"{name}: found {found[name].shape}, wanted {wanted[name].shape}"
        for name in wanted.keys() & found.keys()
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        raise all_at_once(f"{path}: not this model's adapter:", faults, hint="use the base model it was trained on")
    own = [(mlx_names.get(name, name), array) for name, array in found.items()]
    model.network.load_weights(own + saved, strict=False)
