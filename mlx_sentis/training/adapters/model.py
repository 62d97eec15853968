"""LoRA and DoRA on Linear layers, in torch's orientation so that the interchange file is an identity.

Legend: `in`, `out` the layer's widths, `r` rank, s = alpha / r.

LoRA (Hu et al. 2021, arXiv 2106.09685): y = x Wᵀ + s (x Aᵀ) Bᵀ + b, A [r, in], B [out, r].
DoRA (Liu et al. 2024, arXiv 2402.09353): y = (m / ‖W + s B A‖) ⊙ (x Wᵀ + s (x Aᵀ) Bᵀ) + b, with m [out] and the
norm of each row of W + s B A [out, in]. The norm is detached from the gradient (the paper's §4.3, as in PEFT).
W + s B A is never built: ‖W_i + s B_i A‖² = ‖W_i‖² + 2 s B_i·(W_i Aᵀ) + s² B_i (A Aᵀ) B_iᵀ.
"""

from __future__ import annotations

import fnmatch
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_sentis.training.definitions import CausalLM
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.settings import AdapterSettings

DORA_NORM = "detached"


@dataclass(frozen=True)
class AdapterFacts:
    """What the interchange file says of itself."""

    type: str
    rank: int
    alpha: float
    scale: float
    dora_norm: str
    targets: list[str]


class AdaptedLinear(nn.Module):
    """A frozen Linear with a LoRA or DoRA beside it.

    Args:
        linear: the layer to wrap; weight [out, in], optional bias [out].
        rank: r.
        scale: s, alpha / r.
        dora: whether to learn a magnitude per row.
        key: random key of A's initial values.
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float, dora: bool, key: mx.array) -> None:
        super().__init__()
        out, width = linear.weight.shape
        self.linear = linear
        self.scale = scale
        bound = 1 / math.sqrt(width)  # torch's kaiming_uniform with a = √5
        self.lora_A = mx.random.uniform(-bound, bound, (rank, width), key=key)
        self.lora_B = mx.zeros((out, rank))
        if dora:
            self._weight_norm_squared = mx.sum(linear.weight.astype(mx.float32) ** 2, axis=1)
            self.magnitude = mx.sqrt(self._weight_norm_squared)

    def adapted_norm(self) -> mx.array:
        """Return the norm of each row of W + s B A, [out]."""
        cross = mx.sum(self.lora_B * (self.linear.weight @ self.lora_A.T), axis=1)
        square = mx.sum((self.lora_B @ (self.lora_A @ self.lora_A.T)) * self.lora_B, axis=1)
        return mx.sqrt(self._weight_norm_squared + 2 * self.scale * cross + self.scale**2 * square)

    def __call__(self, x: mx.array) -> mx.array:
        y = x @ self.linear.weight.T + self.scale * ((x @ self.lora_A.T) @ self.lora_B.T)
        if "magnitude" in self:
            y = y * (self.magnitude / mx.stop_gradient(self.adapted_norm()))
        return y + self.linear.bias if "bias" in self.linear else y


def target_modules(model: CausalLM, targets: list[str]) -> list[str]:
    """Return the torch names of the Linear modules that the targets choose, in layer order.

    Args:
        model: the decoder.
        targets: `all-linear` (every Linear inside the layers), a last name such as `q_proj`, or a pattern with `*`.

    Raises:
        StageError: a target matches nothing.
    """
    known = list(model.folder.architecture.linear_modules(model.folder.config))
    chosen: set[str] = set()
    faults = []
    for target in targets:
        if target == "all-linear":
            matched = known
        else:
            matched = [n for n in known if n.rpartition(".")[2] == target or fnmatch.fnmatchcase(n, target)]
        if not matched:
            faults.append(f"{target!r} matches no Linear module")
        chosen.update(matched)
    if faults:
        last = sorted({name.rpartition(".")[2] for name in known})
        raise all_at_once("adapter.targets:", faults, hint=f"known: all-linear, {', '.join(last)}, or a pattern with *")
    return [name for name in known if name in chosen]


def add_adapters(model: CausalLM, settings: AdapterSettings, seed: int) -> list[str]:
    """Freeze the model and wrap the targeted layers; return the wrapped modules' torch names."""
    if settings.rank < 1:
        raise StageError(f"adapter.rank: found {settings.rank}, wanted 1 or more", hint="--set adapter.rank=16")
    names = target_modules(model, settings.targets)
    model.network.freeze()
    keys = mx.random.split(mx.random.key(seed), len(names))
    for name, key in zip(names, keys, strict=True):
        parent, leaf = module_at(model.network, name.rpartition(".")[0]), name.rpartition(".")[2]
        adapted = AdaptedLinear(
            parent[leaf], settings.rank, settings.alpha / settings.rank, settings.type == "dora", key
        )
        adapted.linear.freeze()
        setattr(parent, leaf, adapted)
    mx.eval(model.network.parameters())
    if settings.type == "dora":
        _check_rows(model, names)
    return names


def _check_rows(model: CausalLM, names: list[str]) -> None:
    faults = []
    for name in names:
        squares = np.array(module_at(model.network, name)._weight_norm_squared)
        faults += [f"{name}: row {row} is all zeros" for row in np.flatnonzero(squares == 0)[:1]]
    if faults:
        raise all_at_once("DoRA divides by the length of each row:", faults, hint="--set adapter.type=lora")


def module_at(network: nn.Module, name: str) -> nn.Module:
    """Return the module at a dotted name such as `model.layers.3.self_attn`."""
    found = network
    for part in name.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def adapter_tensors(model: CausalLM) -> dict[str, mx.array]:
    """Return name to fp32 array of every trained tensor, sorted by name."""
    return dict(sorted(tree_flatten(model.network.trainable_parameters())))  # pyright: ignore


def facts_of(settings: AdapterSettings, names: list[str]) -> AdapterFacts:
    """Return what to write beside the tensors."""
    scale = settings.alpha / settings.rank
    return AdapterFacts(settings.type, settings.rank, settings.alpha, scale, DORA_NORM, names)


def save_adapter(path: Path, model: CausalLM, facts: AdapterFacts) -> None:
    """Write the interchange file: `<torch module>.lora_A|lora_B|magnitude`, fp32, facts in the metadata."""
    tensors = {name: np.array(array, np.float32) for name, array in adapter_tensors(model).items()}
    shapes = {name: array.shape for name, array in tensors.items()}
    write_safetensors(path, shapes, tensors.items(), {"adapter": json.dumps(asdict(facts))})


def load_adapter(model: CausalLM, path: Path) -> None:
    """Put an interchange file's tensors into a model that already has its adapters.

    Raises:
        StageError: names or shapes differ, all at once.
    """
    found: dict[str, mx.array] = mx.load(str(path))  # pyright: ignore
    wanted = adapter_tensors(model)
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: not in this model" for name in found.keys() - wanted.keys()]
    faults += [
        f"{name}: found {found[name].shape}, wanted {wanted[name].shape}"
        for name in wanted.keys() & found.keys()
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        raise all_at_once(f"{path}: not this model's adapter:", faults, hint="use the base model it was trained on")
    model.network.load_weights(list(found.items()), strict=False)
