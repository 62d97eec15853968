"""Putting adapters on a model, or training all of it; what is trained, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_sentis.training.adapters.modules import Adapted
from mlx_sentis.training.adapters.targets import choose, table_for
from mlx_sentis.training.definitions import CausalLM
from weights_bridge.adapter_kinds import Kind, kind_of
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.model_folder import ModelFolder
from weights_bridge.settings import AdapterSettings

GROUPS = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}  # numbers that share a scale, fixed by the mode


def target_modules(model: CausalLM, targets: list[str], exclude: list[str] | None = None) -> list[str]:
    """Return the torch names of the modules that the targets choose, in layer order (see `targets`).

    Raises:
        StageError: a target or an exclude matches nothing.
    """
    return targets_in(model.folder, targets, exclude or [])


def require_targets(folder: ModelFolder, settings: AdapterSettings) -> None:
    """Refuse patterns that match nothing of a model, before its weights are read.

    Raises:
        StageError: a target, an exclude or a pattern of ranks or alphas matches nothing.
    """
    names = targets_in(folder, settings.targets, settings.exclude)
    ranks_of(settings, names)
    alphas_of(settings, names)


def targets_in(folder: ModelFolder, targets: list[str], exclude: list[str]) -> list[str]:
    """Return the names that the targets choose in a model directory (see `target_modules`)."""
    config = folder.config
    head = "not adapted, only the layers are"
    if config["tie_word_embeddings"]:
        head = "tied to the embeddings: what is merged into it would change every token's input too"
    why_not = {"lm_head": head, "embed_tokens": "embeddings are not adapted; train.full=true trains them"}
    return choose(list(folder.architecture.linear_modules(config)), targets, exclude, why_not)


def add_adapters(model: CausalLM, settings: AdapterSettings, seed: int, *, find_bases: bool = True) -> list[str]:
    """Freeze the model and wrap the targeted layers; return the wrapped modules' torch names (see `adapt`).

    Raises:
        StageError: a pattern matches nothing, or a layer does not take this kind or rank; all at once.
    """
    names = target_modules(model, settings.targets, settings.exclude)
    adapt(model.network, names, settings, seed, find_bases=find_bases)
    if "quantization" in model.folder.config:
        from mlx_sentis.training.quantised_folder import widen

        widen(model.network)
    return names


def adapt(
    network: nn.Module, names: list[str], settings: AdapterSettings, seed: int, *, find_bases: bool = True
) -> None:
    """Freeze a network and wrap the named Linear, Conv1d or QuantizedLinear modules.

    Args:
        network: any network.
        names: dotted names.
        settings: kind, rank, alpha, their patterns, dropout and norm.
        seed: of the initial values; module k gets the k-th key.
        find_bases: whether to decompose W for the -XS kinds; not when a file brings U and V.

    Raises:
        StageError: a layer does not take this kind or rank; all at once.
    """
    if settings.rank < 1:
        raise StageError(f"adapter.rank: found {settings.rank}, wanted 1 or more", hint="--set adapter.rank=16")
    kind = kind_of(settings.type)
    ranks, alphas = ranks_of(settings, names), alphas_of(settings, names)
    sizes = {name: (ranks.get(name, settings.rank), alphas.get(name, settings.alpha)) for name in names}
    _check_ranks(network, kind, {name: rank for name, (rank, _) in sizes.items()})
    network.freeze()
    if settings.quantise != "no":
        quantise(network, names, settings.quantise)
    for name, key in zip(names, mx.random.split(mx.random.key(seed), len(names)), strict=True):
        parent, leaf = module_at(network, name.rpartition(".")[0]), name.rpartition(".")[2]
        rank, alpha = sizes[name]
        adapted = Adapted(
            parent[leaf],
            kind,
            rank,
            kind.scale(rank, alpha),
            key,
            dropout=settings.dropout,
            attached=settings.norm == "attached",
            find_bases=find_bases,
        )
        adapted.train(parent[leaf].training)
        setattr(parent, leaf, adapted)
        mx.eval(adapted.parameters())  # one layer's dense rows at a time
    _check_norms(network, names)


def ranks_of(settings: AdapterSettings, names: list[str]) -> dict[str, int]:
    """Return module to rank where a pattern changes it."""
    return table_for(names, settings.rank_pattern, settings.rank, "rank_pattern")


def alphas_of(settings: AdapterSettings, names: list[str]) -> dict[str, float]:
    """Return module to alpha where a pattern changes it."""
    return table_for(names, settings.alpha_pattern, settings.alpha, "alpha_pattern")


def train_everything(model: CausalLM) -> list[str]:
    """Unfreeze every weight and return the tensors' torch names.

    Raises:
        StageError: a layer holds quantised weights, which have no gradient.
    """
    faults = [name for name, module in model.network.named_modules() if isinstance(module, nn.QuantizedLinear)]
    if faults:
        hint = "give the model in full precision, or train an adapter"
        raise all_at_once("train.full: quantised layers cannot be trained:", faults, hint=hint)
    model.network.unfreeze()
    torch_names = model.folder.architecture.torch_from_mlx(model.folder.config)
    return [torch_names[name] for name in adapter_tensors(model)]


def quantise(network: nn.Module, names: list[str], form: str) -> None:
    """Quantise the named Linear modules in place: the frozen weights of QLoRA (Dettmers et al. 2023, arXiv 2305.14314).

    Args:
        network: any network.
        names: dotted names.
        form: a number of bits (MLX's affine mode, groups of 64 or else of 32) or the name of another mode.

    Raises:
        StageError: a module is no Linear, or its width is no multiple of a group; all at once.
    """
    groups = (64, 32) if form.isdecimal() else (GROUPS[form],)
    fitting, faults = {}, []
    for name in names:
        module = module_at(network, name)
        if not isinstance(module, nn.Linear):
            faults.append(f"{name}: {type(module).__name__}, wanted Linear")
        elif not (fits := [group for group in groups if module.weight.shape[1] % group == 0]):
            faults.append(f"{name}: width {module.weight.shape[1]}, wanted a multiple of {groups[-1]}")
        else:
            fitting[name] = fits[0]
    if faults:
        hint = "exclude these modules, or --set adapter.quantise=no"
        raise all_at_once(f"adapter.quantise={form}:", faults, hint=hint)
    options: dict[str, Any] = {"bits": int(form)} if form.isdecimal() else {"mode": form}
    for name, group in fitting.items():
        parent, leaf = module_at(network, name.rpartition(".")[0]), name.rpartition(".")[2]
        quantised = nn.QuantizedLinear.from_linear(parent[leaf], group, **options)
        mx.eval(quantised.parameters())
        setattr(parent, leaf, quantised.train(parent[leaf].training))


def _check_ranks(network: nn.Module, kind: Kind, ranks: dict[str, int]) -> None:
    faults = []
    for name, rank in ranks.items():
        module = module_at(network, name)
        if isinstance(module, Adapted):
            faults.append(f"{name}: has an adapter already")
        elif kind.fixed_bases and rank > (most := min(_sides(module))):
            faults.append(f"{name}: rank {rank}, but it has {most} singular vectors")
        elif rank > (most := max(_sides(module))):  # beyond its shorter side a rank is of no use, here it is a slip
            faults.append(f"{name}: rank {rank}, wanted at most {most}, its longer side")
    if faults:
        hint = "lower adapter.rank, or load the base model again"
        raise all_at_once(f"{kind.name} does not fit:", faults, hint=hint)


def _sides(module: nn.Module) -> tuple[int, int]:
    from mlx_sentis.training.adapters.frozen import matrix_of

    matrix = matrix_of(module)
    return matrix.out, matrix.width


def _check_norms(network: nn.Module, names: list[str]) -> None:
    faults = []
    for name in names:
        module = module_at(network, name)
        for word, squares in (("row", "_row_squares"), ("column", "_column_squares")):
            if squares in module:
                zeros = np.flatnonzero(np.array(module[squares]) == 0)
                faults += [f"{name}: {word} {index} is all zeros" for index in zeros[:1]]
    if faults:
        hint = "--set adapter.type=lora, or exclude these modules"
        raise all_at_once("this kind divides by the length of each row or column:", faults, hint=hint)


def module_at(network: nn.Module, name: str) -> nn.Module:
    """Return the module at a dotted name such as `model.layers.3.self_attn`; the network itself for an empty one."""
    found = network
    for part in filter(None, name.split(".")):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def adapted_modules(network: nn.Module) -> Iterator[tuple[str, Adapted]]:
    """Yield (name, module) of every module with an adapter, sorted by name."""
    named = sorted(network.named_modules(), key=lambda pair: pair[0])
    return ((name, module) for name, module in named if isinstance(module, Adapted))


def adapter_tensors(model: CausalLM) -> dict[str, mx.array]:
    """Return name to fp32 array of every trained tensor, sorted by name."""
    return dict(sorted(tree_flatten(model.network.trainable_parameters())))  # pyright: ignore
