"""The training step: one update over one or more micro-batches, compiled where that pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import numpy as np
from mlx.utils import tree_flatten, tree_map

from mlx_sentis.training.batches import Batch
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.head import head_loss_sum
from mlx_sentis.training.prefix import hidden_of_passes
from mlx_sentis.training.ranks import ALONE, Ranks
from mlx_sentis.training.streams import on_stream
from weights_bridge.settings import TrainSettings

Layout = tuple[tuple[int, int, bool, int], ...]  # (parent, first, leaf, stream) of each pass
# layout, ids of each pass, positions of each pass, labels, weights
Arrays = tuple[Layout, tuple[mx.array, ...], tuple[mx.array, ...], mx.array, mx.array]


@dataclass(frozen=True)
class StepResult:
    """What one update reports.

    Attributes:
        loss: mean cross-entropy over the labelled tokens, nats.
        grad_norm: global L2 of the adapter gradients after clipping.
        magnitude: global L2 of the adapter tensors before the update.
        magnitude_after: the same of what the update would make of them; what is not finite was not taken over.
    """

    loss: float
    grad_norm: float
    magnitude: float
    magnitude_after: float = 0.0

    @property
    def unfinite(self) -> str:
        """What is not finite and so changed nothing, in words; empty for an update that was done."""
        figures = {"loss": self.loss, "gradient norm": self.grad_norm, "size of the weights": self.magnitude_after}
        return next((f"{name} is {figure}" for name, figure in figures.items() if not math.isfinite(figure)), "")


def should_compile() -> bool:
    """Tell whether compiling the step pays.

    On Metal it does. The CPU backend runs a C++ compiler for every fused kernel and shape: 18–45 s for the first
    step of a 2-layer model whose plain step takes 0.4 s.
    """
    return mx.default_device() == mx.gpu


def arrays_of(batch: Batch) -> Arrays:
    """Return a batch's arrays on the device, and how its passes hang together."""
    layout = tuple((one.parent, one.first, one.leaf, one.stream) for one in batch.passes)
    ids = tuple(mx.array(one.ids) for one in batch.passes)
    positions = tuple(mx.array(one.positions) for one in batch.passes)
    return layout, ids, positions, mx.array(batch.labels), mx.array(batch.weights)


def loss_of_embeddings(
    model: CausalLM, embeddings: Sequence[mx.array], arrays: Arrays, total: mx.array | None = None
) -> mx.array:
    """Return Σ cross-entropy / total over labelled tokens.

    Args:
        model: the decoder.
        embeddings: of each pass, [R, S, H].
        arrays: of the batch; its ids are not used.
        total: labelled tokens to divide by; None takes the batch's own, which gives its mean.
    """
    layout, _, positions, labels, weights = arrays
    hidden = hidden_of_passes(model, embeddings, layout)
    losses = mx.array(0.0)
    for number in sorted({stream for _, _, leaf, stream in layout if leaf}):
        read, spans, start = [], [], 0
        for states, at, (_, _, _, stream) in zip(hidden, positions, layout, strict=True):
            if states is not None and stream == number:
                read.append((states, at))
                spans.append(slice(start, start + at.size))
            start += at.size
        with on_stream(number):  # the head runs at labels only
            labelled = in_one([states.reshape(-1, states.shape[-1])[at] for states, at in read])
            wanted, counted = in_one([labels[span] for span in spans]), in_one([weights[span] for span in spans])
            losses = losses + head_loss_sum(model, labelled, wanted, counted)
    return losses / (weights.sum() if total is None else total)


def in_one(parts: list[mx.array]) -> mx.array:
    return parts[0] if len(parts) == 1 else mx.concatenate(parts)


def loss_of_batch(model: CausalLM, arrays: Arrays, total: mx.array | None = None) -> mx.array:
    """Return Σ cross-entropy / total over a batch's labelled tokens; without a total, their mean."""
    return loss_of_embeddings(model, [model.embed(ids) for ids in arrays[1]], arrays, total)


def number(array: mx.array) -> float:
    """Return a scalar array's value."""
    return float(array.item())  # pyright: ignore[reportArgumentType] - MLX's scalar may be complex, ours is not


def global_norm(tree: Any) -> mx.array:
    """Return the L2 norm over all arrays of a tree."""
    arrays: list[mx.array] = [array for _, array in tree_flatten(tree)]  # pyright: ignore
    return mx.sqrt(sum((mx.sum(array**2) for array in arrays), start=mx.array(0.0)))


def make_train_step(
    model: CausalLM, optimizer: optimizers.Optimizer, settings: TrainSettings, ranks: Ranks = ALONE
) -> Callable[[Sequence[Batch]], StepResult]:
    """Return `train_step(micro_batches)`: one update.

    Loss and gradients are sums over the labelled tokens of all micro-batches of all processes, divided by their number:
    the update is that of one large batch, however its rows are dealt out. A step whose loss, gradient or new weights
    are not finite leaves adapters and optimiser as they were, so that the last good state can still be saved.

    Args:
        model: trainable.
        optimizer: it is initialised here.
        settings: `gradient_clip`.
        ranks: the processes that train together; one without rows of its own gives nothing to the sums.
    """
    network = model.network
    value_and_grad = nn.value_and_grad(network, lambda arrays, total: loss_of_batch(model, arrays, total))
    optimizer.init(network.trainable_parameters())
    state = [network.state, optimizer.state, mx.random.state]

    def update(loss: mx.array, gradients: Any) -> tuple[mx.array, mx.array, mx.array]:
        if settings.gradient_clip > 0:
            gradients, _ = optimizers.clip_grad_norm(gradients, settings.gradient_clip)
        norm, magnitude = global_norm(gradients), global_norm(network.trainable_parameters())
        # copies of the trees (not of the arrays): the optimiser changes its inner dictionaries in place
        before = tree_map(lambda array: array, (network.trainable_parameters(), dict(optimizer.state)))
        optimizer.update(network, gradients)
        after = global_norm(network.trainable_parameters())
        finite = mx.isfinite(loss) & mx.isfinite(norm) & mx.isfinite(after)
        keep = lambda new, old: mx.where(finite, new, old)  # noqa: E731
        network.update(tree_map(keep, network.trainable_parameters(), before[0]))
        optimizer.state.update(tree_map(keep, dict(optimizer.state), before[1]))  # in place: compiled by reference
        return norm, magnitude, after

    compiled = (lambda f: mx.compile(f, inputs=state, outputs=state)) if should_compile() else (lambda f: f)
    run_gradients, run_update = compiled(value_and_grad), compiled(update)

    def own_gradients(batches: Sequence[Batch], total: mx.array) -> tuple[mx.array, Any]:
        if not batches:
            return mx.array(0.0), tree_map(mx.zeros_like, network.trainable_parameters())
        loss, gradients = run_gradients(arrays_of(batches[0]), total)
        mx.eval(loss, gradients)  # here, so that the activations of one micro-batch are gone before the next
        for batch in batches[1:]:
            more_loss, more = run_gradients(arrays_of(batch), total)
            loss, gradients = loss + more_loss, tree_map(mx.add, gradients, more)
            mx.eval(loss, gradients)
        return loss, gradients

    def train_step(batches: Sequence[Batch]) -> StepResult:
        labelled = ranks.added(np.array(sum(batch.trained_tokens for batch in batches)))
        with ranks.together():
            loss, gradients = own_gradients(batches, mx.array(float(labelled)))
        loss, gradients = ranks.summed((loss, gradients))
        norm, magnitude, after = run_update(loss, gradients)
        mx.eval(norm, magnitude, after, state)
        return StepResult(number(loss), number(norm), number(magnitude), number(after))

    return train_step
