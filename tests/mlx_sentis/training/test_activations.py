"""Activation checkpoints change memory, never a gradient."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from training_rows import rendered_rows

from mlx_sentis.blas import TAPE_WIDTH
from mlx_sentis.training.activations import checkpoint_activations
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.sharing import sharing_of
from mlx_sentis.training.step import arrays_of, loss_of_batch

Make = Callable[..., Any]
ROWS = rendered_rows(*range(30, 46), prefix=160)  # 160 is shared at once, and longer than toy gemma's window


def gradients(model: Any, *, share: bool, seed: int = 0, streams: int | None = None) -> tuple[float, dict[str, Any]]:
    model.network.train()
    mx.random.seed(seed)
    sharing = sharing_of(ROWS, enabled=share, streams=streams) if share or streams else 0
    arrays = arrays_of(make_batch(ROWS[:6], sharing, 0))
    loss, found = nn.value_and_grad(model.network, lambda: loss_of_batch(model, arrays))()
    return float(loss.item()), {name: np.array(array) for name, array in tree_flatten(found)}  # pyright: ignore


def test_the_rows_share_a_segment() -> None:
    assert make_batch(ROWS[:6], sharing_of(ROWS), 0).shared_tokens >= 128


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_gradients_equal_those_that_keep_every_activation(decoder: Make, model_type: str, share: bool) -> None:
    model = decoder(model_type)
    loss, plain = gradients(model, share=share)
    checkpoint_activations(model)
    again, found = gradients(model, share=share)
    assert again == pytest.approx(loss, rel=1e-6)
    assert found.keys() == plain.keys()
    for name in plain:
        norm = np.linalg.norm(plain[name])
        assert norm > 0, name
        assert np.linalg.norm(found[name] - plain[name]) <= 1e-5 * norm, name


@pytest.mark.parametrize("share", [True, False])
def test_passes_side_by_side_are_computed_again_each_on_its_own_stream(decoder: Make, share: bool) -> None:
    model, used = decoder("llama"), Counter()
    for layer in model.layers:
        layer.__class__ = heard_by(used, type(layer))
    loss, plain = gradients(model, share=share, streams=3)
    forward = dict(used)
    assert len(forward) == 3
    used.clear()
    checkpoint_activations(model)
    again, found = gradients(model, share=share, streams=3)
    assert used == {stream: 2 * calls for stream, calls in forward.items()}
    assert again == pytest.approx(loss, rel=1e-6)
    for name in plain:
        assert np.linalg.norm(found[name] - plain[name]) <= 1e-5 * np.linalg.norm(plain[name]), name


def heard_by(used: Counter[str], plain: type) -> type:
    """Return a layer's class that counts on which stream it is built."""

    def call(self: Any, *words: Any, **named: Any) -> mx.array:
        used[str(mx.default_stream(mx.default_device()))] += 1
        return plain.__call__(self, *words, **named)

    return type("Heard", (plain,), {"__call__": call})


def test_names_and_places_of_modules_stay(decoder: Make) -> None:
    model = decoder("llama")
    before = [name for name, _ in model.network.named_modules()]
    checkpoint_activations(model)
    assert [name for name, _ in model.network.named_modules()] == before


def test_both_forward_passes_drop_the_same_values(decoder: Make) -> None:
    # against finite differences: with two different masks the gradient would be of neither
    model = decoder("llama", "lora", dropout=0.5)
    checkpoint_activations(model)
    _, found = gradients(model, share=True, seed=4)
    name = "model.layers.0.self_attn.q_proj.lora_B"
    direction = found[name] / np.linalg.norm(found[name])
    start = np.array(dict(tree_flatten(model.network.trainable_parameters()))[name])  # pyright: ignore
    losses = []
    for step in (0.05, -0.05):
        model.network.load_weights([(name, mx.array(start + step * direction))], strict=False)
        losses.append(gradients(model, share=True, seed=4)[0])
    assert (losses[0] - losses[1]) / 0.1 == pytest.approx(float(np.linalg.norm(found[name])), rel=0.05)


@pytest.mark.parametrize("streams", [1, 2])
def test_less_memory_is_needed_at_the_peak_the_deeper_the_model(decoder: Make, streams: int) -> None:
    """Breadth first through the graph as in training, where all layers could be computed again at once."""
    assert os.environ[TAPE_WIDTH[0]] == TAPE_WIDTH[1]
    model, peaks = decoder("llama", "lora"), []
    model.network.model.layers = [copy.deepcopy(layer) for _ in range(6) for layer in model.layers]
    for _ in range(2):
        gradients(model, share=False, streams=streams)
        mx.clear_cache()
        mx.reset_peak_memory()
        gradients(model, share=False, streams=streams)
        peaks.append(mx.get_peak_memory() - mx.get_active_memory())
        checkpoint_activations(model)
    assert peaks[1] < 0.3 * peaks[0], peaks
