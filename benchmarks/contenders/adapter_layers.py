"""Adapted layers, forward and backward: our kinds and mlx-lm's own LoRALinear and DoRALinear, taking turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mlx_sentis.training.adapters.modules import Adapted
from weights_bridge.adapter_kinds import KINDS

# isort: split
import mlx.core as mx  # after mlx_sentis.training, which puts the fast BLAS under it
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.tuner.dora import DoRALinear
from mlx_lm.tuner.lora import LoRALinear

RANK, LAYERS = 16, 4  # several layers, because what a layer keeps for its backward pass adds up
APART = 1e-4  # relative; the same tensors give the same output and gradients in both
Contenders = dict[str, Callable[[], list[mx.array]]]


def measure(out: int, width: int, tokens: int, bits: int, runs: int) -> dict[str, Any]:
    """Return contender to its quickest round's seconds and MLX's peak in MiB, over what lies there anyway.

    Args:
        out: rows of the weight.
        width: its columns. Every second layer leads back, from `out` to `width`.
        tokens: positions of one call.
        bits: 0 for fp32 weights, else of the quantised ones, in groups of 64.
        runs: counted rounds after one warm-up; in each round every contender runs once.

    Raises:
        RuntimeError: our DoRA and mlx-lm's, given the same tensors, differ.
    """
    mx.random.seed(0)
    shapes = [(width, out), (out, width)] * (LAYERS // 2)
    linears: list[Any] = [nn.Linear(*shape, bias=False).freeze() for shape in shapes]
    if bits:
        linears = [nn.QuantizedLinear.from_linear(linear, 64, bits) for linear in linears]
    x = mx.random.normal((tokens, width))
    mx.eval([linear.parameters() for linear in linears], x)
    contenders = _contenders(linears, x)
    _require_equal(linears[0], x)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    peaks = dict.fromkeys(contenders, 0.0)
    for counted in (False, *[True] * runs):
        for name, call in contenders.items():
            mx.clear_cache()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            began = time.perf_counter()
            mx.eval(call())
            if counted:
                seconds[name].append(time.perf_counter() - began)
                peaks[name] = max(peaks[name], (mx.get_peak_memory() - before) / 2**20)
    return {name: {"seconds": min(every), "peak_mib": round(peaks[name], 1)} for name, every in seconds.items()}


def _contenders(linears: list[Any], x: mx.array) -> Contenders:
    make: dict[str, Callable[[Any], nn.Module]] = {"frozen layers alone": lambda linear: linear}
    make |= {f"ours, {kind}": lambda linear, kind=kind: _ours(linear, kind) for kind in KINDS}
    make["mlx-lm, LoRALinear"] = lambda linear: LoRALinear.from_base(linear, RANK, scale=1.0)
    make["mlx-lm, DoRALinear"] = lambda linear: DoRALinear.from_base(linear, RANK, scale=1.0)
    stacks = {name: nn.Sequential(*[one(linear) for linear in linears]) for name, one in make.items()}
    mx.eval([stack.parameters() for stack in stacks.values()])
    return {name: _backward(stack, x) for name, stack in stacks.items()}


def _ours(linear: Any, kind: str) -> Adapted:
    return Adapted(linear, KINDS[kind], RANK, 1.0, mx.random.key(1), find_bases=False)


def _backward(layer: Any, x: mx.array) -> Callable[[], list[mx.array]]:
    """Return a call that computes the gradients of Σ y² at the trained tensors and at the input."""

    def loss(parameters: Any, x: mx.array) -> mx.array:
        layer.update(parameters)
        return mx.sum(mx.square(layer(x)))

    gradients = mx.grad(loss, argnums=(0, 1) if tree_flatten(layer.trainable_parameters()) else 1)

    def call() -> list[mx.array]:
        return [array for _, array in tree_flatten(gradients(layer.trainable_parameters(), x))]  # pyright: ignore

    return call


def _require_equal(linear: Any, x: mx.array) -> None:
    """Give both DoRAs the same tensors and require the same output and gradients."""
    ours, theirs = _ours(linear, "dora"), DoRALinear.from_base(linear, RANK, scale=1.0)
    ours.lora_B = mx.random.normal(ours.lora_B.shape) / math.sqrt(RANK)
    theirs.lora_a, theirs.lora_b = ours.lora_A.T, ours.lora_B.T
    pairs = [(ours(x), theirs(x))]
    (a, b, m), (their_a, their_b, their_m) = (
        [gradients[name] for name in names]
        for gradients, names in (
            (_gradients(ours, x), ("lora_A", "lora_B", "magnitude")),
            (_gradients(theirs, x), ("lora_a", "lora_b", "m")),
        )
    )
    pairs += [(a, their_a.T), (b, their_b.T), (m, their_m)]
    for found, wanted in pairs:
        apart = float(np.abs(np.array(found - wanted)).max() / np.abs(np.array(wanted)).max())
        if not apart < APART:
            raise RuntimeError(f"our DoRA and mlx-lm's differ by {apart:.1e}")


def _gradients(layer: Any, x: mx.array) -> dict[str, mx.array]:
    _, gradients = nn.value_and_grad(layer, lambda x: mx.sum(mx.square(layer(x))))(x)
    return dict(tree_flatten(gradients))  # pyright: ignore
