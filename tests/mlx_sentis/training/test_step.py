"""One update: its figures, the clip, and a step that is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import numpy as np
import pytest
from mlx.utils import tree_flatten
from training_rows import rendered_rows

from mlx_sentis.training import step
from mlx_sentis.training.adapters import adapter_tensors
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.step import arrays_of, loss_of_batch, make_train_step
from weights_bridge.settings import TrainSettings

Make = Callable[..., Any]
BATCH = make_batch(rendered_rows(12, 20), 48, 0)


def values(model: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in adapter_tensors(model).items()}


def norm(arrays: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in arrays.values())))


def gradients(model: Any) -> dict[str, np.ndarray]:
    _, tree = nn.value_and_grad(model.network, lambda batch: loss_of_batch(model, batch))(arrays_of(BATCH))
    return {name: np.array(array) for name, array in tree_flatten(tree)}


def adamw(rate: float = 1e-3) -> optimizers.AdamW:
    return optimizers.AdamW(rate, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, bias_correction=True)


def test_the_figures_are_loss_gradient_norm_and_magnitude_before_the_update(decoder: Make) -> None:
    model = decoder("llama")
    loss, before, wanted = loss_of_batch(model, arrays_of(BATCH)).item(), values(model), norm(gradients(model))
    result = make_train_step(model, adamw(), TrainSettings(gradient_clip=0.0))([BATCH])
    assert result.loss == pytest.approx(loss, rel=1e-6)
    assert result.grad_norm == pytest.approx(wanted, rel=1e-5)
    assert result.magnitude == pytest.approx(norm(before), rel=1e-5)


def test_an_update_is_torchs_adamw(decoder: Make) -> None:
    import torch

    model = decoder("llama")
    settings = TrainSettings(learning_rate=1e-2, weight_decay=0.1, gradient_clip=0.0)
    rule = optimizers.AdamW(1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1, bias_correction=True)
    train_step = make_train_step(model, rule, settings)
    theirs = {name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in values(model).items()}
    other = torch.optim.AdamW(theirs.values(), lr=1e-2, weight_decay=0.1)
    for _ in range(3):
        for name, gradient in gradients(model).items():
            theirs[name].grad = torch.from_numpy(gradient.copy())
        other.step()
        train_step([BATCH])
    for name, array in values(model).items():
        np.testing.assert_allclose(array, theirs[name].detach().numpy(), rtol=1e-4, atol=2e-5, err_msg=name)


def test_the_base_weights_do_not_move(decoder: Make) -> None:
    model = decoder("llama")
    linear = model.layers[0].self_attn.q_proj.base
    before, table = np.array(linear.weight), np.array(model.network.model.embed_tokens.weight)
    make_train_step(model, adamw(0.1), TrainSettings())([BATCH])
    np.testing.assert_array_equal(np.array(linear.weight), before)
    np.testing.assert_array_equal(np.array(model.network.model.embed_tokens.weight), table)


def test_the_clip_bounds_the_reported_norm_and_zero_is_off(decoder: Make) -> None:
    free = make_train_step(decoder("llama"), adamw(), TrainSettings(gradient_clip=0.0))([BATCH])
    assert free.grad_norm > 0.1
    clipped = make_train_step(decoder("llama"), adamw(), TrainSettings(gradient_clip=0.05))([BATCH])
    assert clipped.grad_norm == pytest.approx(0.05, rel=1e-3)
    wide = make_train_step(decoder("llama"), adamw(), TrainSettings(gradient_clip=1e6))([BATCH])
    assert wide.grad_norm == free.grad_norm


@pytest.mark.parametrize("bad", [mx.nan, mx.inf])
def test_a_step_that_is_not_finite_changes_nothing(decoder: Make, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rule = decoder("llama"), adamw(0.01)
    train_step = make_train_step(model, rule, TrainSettings())
    train_step([BATCH])
    before, moments = values(model), {k: np.array(v) for k, v in tree_flatten(rule.state)}
    sound = step.loss_of_batch
    monkeypatch.setattr(step, "loss_of_batch", lambda *words: sound(*words) * bad)
    assert not np.isfinite(train_step([BATCH]).loss)
    for name, array in values(model).items():
        np.testing.assert_array_equal(array, before[name])
    for name, array in tree_flatten(rule.state):
        np.testing.assert_array_equal(np.array(array), moments[name], err_msg=name)


@pytest.mark.parametrize("rate", [float("inf"), 1e30])
def test_an_update_that_leaves_the_finite_numbers_changes_nothing_and_says_so(decoder: Make, rate: float) -> None:
    model, rule = decoder("llama"), adamw(rate)
    before = values(model)
    result = make_train_step(model, rule, TrainSettings())([BATCH])
    assert np.isfinite([result.loss, result.grad_norm]).all()
    assert result.unfinite in ("size of the weights is inf", "size of the weights is nan")
    for name, array in values(model).items():
        np.testing.assert_array_equal(array, before[name])
    assert int(rule.step.item()) == 0  # pyright: ignore[reportArgumentType]


def test_a_compiled_step_equals_the_plain_one(decoder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, compiled = decoder("llama", "lora", targets=["q_proj"]), decoder("llama", "lora", targets=["q_proj"])
    assert step.should_compile() == (mx.default_device() == mx.gpu)
    plain_step = make_train_step(plain, adamw(0.01), TrainSettings())
    seen: list[Any] = []

    def recorded(function: Any, inputs: Any, outputs: Any) -> Any:  # what Metal compiles; the CPU compiles for minutes
        seen.extend([inputs, outputs])
        return function

    monkeypatch.setattr(step, "should_compile", lambda: True)
    monkeypatch.setattr(mx, "compile", recorded)
    compiled_step = make_train_step(compiled, adamw(0.01), TrainSettings())
    assert seen[0] is seen[1]
    assert [plain_step([BATCH]) for _ in range(3)] == [compiled_step([BATCH]) for _ in range(3)]


def test_accumulated_micro_batches_are_one_large_batch(decoder: Make) -> None:
    rows = rendered_rows(12, 20, 9, 31, 7, 15, 40, 26)  # 2 to 13 labels a row: a mean of means would differ
    whole = make_train_step(model := decoder("llama"), adamw(0.01), TrainSettings())
    parts = make_train_step(other := decoder("llama"), adamw(0.01), TrainSettings())
    for _ in range(3):
        one = whole([make_batch(rows, 48, 0)])
        four = parts([make_batch(rows[i : i + 2], 48, 0) for i in range(0, 8, 2)])
        assert four.loss == pytest.approx(one.loss, rel=1e-5)
        assert four.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
    for name, array in values(model).items():
        np.testing.assert_allclose(values(other)[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_leaf_or_a_micro_batch_weighs_by_its_labels(decoder: Make) -> None:
    model, rows = decoder("llama"), rendered_rows(12, 30)
    losses = [loss_of_batch(model, arrays_of(make_batch([row], 0, 0))).item() for row in rows]
    labels = [make_batch([row], 0, 0).trained_tokens for row in rows]
    step_of = make_train_step(model, adamw(), TrainSettings())
    found = step_of([make_batch([row], 0, 0) for row in rows]).loss
    assert found == pytest.approx(np.average(losses, weights=labels), rel=1e-6)
    assert abs(found - np.mean(losses)) > 1e-3
