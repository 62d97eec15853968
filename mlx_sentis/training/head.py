"""The head and its cross-entropy at labelled positions, in chunks: no full logits tensor exists.

A frozen head needs two products in all, forward and backward together: with e = exp(logits − peak) of a chunk,
Σ e gives the loss and (e @ W) / Σ e − W[label] its gradient with respect to the hidden states, in the same pass and
without a scatter into [N, V]. As in Cut Cross-Entropy (Wijmans et al. 2024, arXiv 2411.09009) and Liger Kernel
(Hsu et al. 2024, arXiv 2410.10989), both for CUDA. A trained, adapted or quantised head takes the plain way, chunk
by chunk, its logits computed once more for the gradient.

Legend: `N` labelled positions, `V` vocabulary, `H` hidden width, `n` rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.nn.utils import checkpoint

from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.loss import cross_entropy_sum, sum_in_blocks

CHUNK = 2**24  # logits of a chunk: 64 MiB in fp32, whatever the vocabulary


def head_module(model: CausalLM) -> Any:
    """Return the module that makes logits: `lm_head`, or the embedding where both are tied."""
    return model.network.lm_head if "lm_head" in model.network else model.network.model.embed_tokens


def frozen_weight(model: CausalLM) -> mx.array | None:
    """Return the head's weight [V, H] where the head is its plain product and frozen, else None."""
    if model.logit_cap is not None:
        return None
    head = head_module(model)
    plain = type(head) in (nn.Linear, nn.Embedding) and "bias" not in head
    return head.weight if plain and not head.trainable_parameters() else None


def chunks(count: int, vocabulary: int) -> Iterator[slice]:
    """Yield slices of N rows whose logits stay within `CHUNK` elements."""
    size = max(1, CHUNK // vocabulary)
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))


def head_loss_sum(model: CausalLM, hidden: mx.array, labels: mx.array, weights: mx.array) -> mx.array:
    """Return Σ weights · cross-entropy in fp32.

    Args:
        model: the decoder.
        hidden: [N, H].
        labels: [N] token ids.
        weights: [N].
    """
    weight = frozen_weight(model)
    if weight is not None:
        return frozen_head_loss_sum(hidden, weight, labels, weights)
    total = mx.array(0.0)
    for rows in chunks(hidden.shape[0], model.folder.config["vocab_size"]):
        part = mx.depends([hidden[rows]], [total])[0]  # one chunk after the other: they share one chunk's memory
        total = total + checkpoint(head_module(model), _loss_of(model, labels[rows], weights[rows]))(part)
    return total


def _loss_of(model: CausalLM, labels: mx.array, weights: mx.array) -> Callable[[mx.array], mx.array]:
    return lambda hidden: cross_entropy_sum(model.logits(hidden), labels, weights)


def frozen_head_loss_sum(hidden: mx.array, weight: mx.array, labels: mx.array, weights: mx.array) -> mx.array:
    """Return Σ weights · cross-entropy of a frozen head; its gradient with respect to `hidden` comes along.

    Args:
        hidden: [N, H].
        weight: [V, H].
        labels: [N].
        weights: [N].
    """

    @mx.custom_function
    def loss_and_gradient(states: mx.array) -> tuple[mx.array, mx.array]:
        total, gradients = mx.array(0.0), []
        for rows in chunks(states.shape[0], weight.shape[0]):
            part = mx.depends([states[rows]], [total, *gradients[-1:]])[0]  # one chunk after the other
            loss, gradient = _chunk(part, weight, labels[rows], weights[rows])
            total = total + loss
            gradients.append(gradient)
        return total, mx.concatenate(gradients)

    @loss_and_gradient.vjp
    def backward(primal: Any, cotangents: Any, outputs: Any) -> mx.array:
        return cotangents[0] * outputs[1]

    total, _ = loss_and_gradient(hidden)  # pyright: ignore[reportGeneralTypeIssues]
    return total


def _chunk(hidden: mx.array, weight: mx.array, labels: mx.array, weights: mx.array) -> tuple[mx.array, mx.array]:
    """Return the loss of [n, H] hidden states and its gradient [n, H]."""
    wide, chosen_rows = weight.astype(mx.float32), weight[labels].astype(mx.float32)
    states = hidden.astype(mx.float32)
    logits = states @ wide.T
    peak = mx.max(logits, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(logits, labels[:, None], axis=-1)
    shifted = mx.exp(logits - peak)
    total = sum_in_blocks(shifted)[:, None]
    loss = mx.sum(weights[:, None] * (mx.log(total) + peak - chosen))
    gradient = (shifted @ wide) * (weights[:, None] / total) - weights[:, None] * chosen_rows
    return loss, gradient.astype(hidden.dtype)
