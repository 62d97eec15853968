"""The head in chunks: loss and gradient against float64, memory whatever the vocabulary, trained heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlx_sentis.training import head
from mlx_sentis.training.head import chunks, frozen_head_loss_sum, frozen_weight, head_loss_sum

Make = Callable[..., Any]


def inputs(count: int, vocabulary: int, width: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    hidden, weight = rng.standard_normal((count, width)), rng.standard_normal((vocabulary, width))
    weights = np.ones(count)
    weights[-3:] = 0.0
    return hidden, weight, rng.integers(0, vocabulary, count), weights


def reference(
    hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return Σ w (logsumexp − logit) and its gradient in float64."""
    logits = hidden @ weight.T
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = shifted.sum(axis=1, keepdims=True)
    losses = np.log(total)[:, 0] + logits.max(axis=1) - logits[np.arange(len(labels)), labels]
    probabilities = shifted / total
    probabilities[np.arange(len(labels)), labels] -= 1
    return float((weights * losses).sum()), (weights[:, None] * probabilities) @ weight


@pytest.mark.parametrize("chunk", [2**24, 7 * 1000, 1])
def test_loss_and_gradient_are_float64s_whatever_the_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", chunk)
    hidden, weight, labels, weights = inputs(40, 1000)
    wanted_loss, wanted = reference(hidden, weight, labels, weights)
    matrix, ids, marks = mx.array(weight.astype(np.float32)), mx.array(labels), mx.array(weights.astype(np.float32))
    run = mx.value_and_grad(lambda states: 3 * frozen_head_loss_sum(states, matrix, ids, marks))
    loss, gradient = run(mx.array(hidden.astype(np.float32)))
    assert loss.item() == pytest.approx(3 * wanted_loss, rel=1e-6)
    assert np.linalg.norm(np.array(gradient) - 3 * wanted) / np.linalg.norm(3 * wanted) < 1e-6


def test_rows_of_any_count_around_a_chunk_give_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", 512 * 50)
    for count in (511, 512, 513, 1025):
        hidden, weight, labels, weights = inputs(count, 50)
        ids, marks = mx.array(labels), mx.array(weights.astype(np.float32))
        found = frozen_head_loss_sum(*(mx.array(a.astype(np.float32)) for a in (hidden, weight)), ids, marks)
        assert found.item() == pytest.approx(reference(hidden, weight, labels, weights)[0], rel=1e-5)


def test_chunks_cover_every_row_once_within_the_size() -> None:
    parts = list(chunks(1000, 49152))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(1000))
    assert max(part.stop - part.start for part in parts) * 49152 <= head.CHUNK
    assert [part.stop - part.start for part in chunks(3, 2**25)] == [1, 1, 1]


def peak_bytes(count: int, vocabulary: int) -> int:
    hidden, weight, labels, weights = inputs(count, vocabulary, width=8)
    arrays = [mx.array(a.astype(np.float32)) for a in (hidden, weight)]
    mx.eval(arrays)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    run = mx.value_and_grad(
        lambda states: frozen_head_loss_sum(states, arrays[1], mx.array(labels), mx.array(weights.astype(np.float32)))
    )
    mx.eval(run(arrays[0]))
    return mx.get_peak_memory() - before


def test_memory_does_not_grow_with_vocabulary_or_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", 2**18)
    small, large, more = peak_bytes(256, 2**12), peak_bytes(256, 2**14), peak_bytes(1024, 2**14)
    assert small < 8 * 4 * 2**18  # a handful of chunks in fp32; the logits of the last case alone are 64 chunks
    assert large < 1.5 * small
    assert more < 1.5 * small


def test_a_trained_head_gets_its_gradient_and_the_same_loss(decoder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", 424 * 7)
    model = decoder("qwen3", None)
    model.network.freeze()
    rng = np.random.default_rng(1)
    hidden = mx.array(rng.standard_normal((20, 64)).astype(np.float32))
    labels, weights = mx.array(rng.integers(0, 420, 20)), mx.ones(20)
    assert frozen_weight(model) is not None
    frozen = head_loss_sum(model, hidden, labels, weights)
    model.network.lm_head.unfreeze()
    assert frozen_weight(model) is None

    def loss(states: mx.array) -> mx.array:
        return head_loss_sum(model, states, labels, weights)

    value, gradients = nn.value_and_grad(model.network, loss)(hidden)
    assert value.item() == pytest.approx(frozen.item(), rel=1e-6)
    states, table = (np.array(a, np.float64) for a in (hidden, model.network.lm_head.weight))
    logits = states @ table.T
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(20), np.array(labels)] -= 1
    found = np.array(gradients["lm_head"]["weight"], np.float64)
    assert np.linalg.norm(found - probabilities.T @ states) / np.linalg.norm(probabilities.T @ states) < 1e-6


def test_a_quantised_head_takes_the_plain_way(decoder: Make) -> None:
    model = decoder("qwen3", None)
    model.network.freeze()
    model.network.lm_head = model.network.lm_head.to_quantized(group_size=32, bits=8)
    assert frozen_weight(model) is None
    hidden = mx.random.normal((5, 64), key=mx.random.key(0))
    labels, weights = mx.array([1, 2, 3, 4, 5]), mx.ones(5)
    wanted = nn.losses.cross_entropy(model.logits(hidden), labels, reduction="sum")
    assert head_loss_sum(model, hidden, labels, weights).item() == pytest.approx(wanted.item(), rel=1e-5)
    gradient = mx.grad(lambda states: head_loss_sum(model, states, labels, weights))(hidden)
    plain = mx.grad(lambda states: nn.losses.cross_entropy(model.logits(states), labels, reduction="sum"))(hidden)
    np.testing.assert_allclose(np.array(gradient), np.array(plain), rtol=1e-4, atol=1e-5)
