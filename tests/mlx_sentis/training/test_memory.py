"""The memory estimate against MLX's measured peak, limits, and which errors mean that memory ran out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from training_rows import rendered_rows

from mlx_sentis.training import memory
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.optimisers import make_optimizer
from mlx_sentis.training.sharing import sharing_of
from mlx_sentis.training.step import make_train_step
from weights_bridge.settings import TrainSettings

Make = Callable[..., Any]
ROWS = rendered_rows(*range(100, 108), prefix=160)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_the_estimate_is_of_the_measured_peaks_size(decoder: Make, model_type: str, kind: str, share: bool) -> None:
    model, settings = decoder(model_type, kind), TrainSettings()
    batch = make_batch(ROWS, sharing_of(ROWS) if share else 0, 0)
    expected = memory.estimate(model, batch, settings)
    train_step = make_train_step(model, make_optimizer(settings, 4)[0], settings)
    train_step([batch])
    mx.clear_cache()
    mx.reset_peak_memory()
    train_step([batch])
    assert expected.gib == pytest.approx(memory.peak_gib(), rel=0.5)


def test_the_estimate_grows_with_rows_and_with_what_is_kept_of_each(decoder: Make) -> None:
    model = decoder("llama", "lora")
    few, many = (memory.estimate(model, make_batch(ROWS[:n], 0, 0), TrainSettings()) for n in (2, 8))
    assert many.activations == pytest.approx(4 * few.activations, rel=0.15)
    assert (many.weights, many.trained) == (few.weights, few.trained)
    sgd = memory.estimate(model, make_batch(ROWS[:2], 0, 0), TrainSettings(optimizer="sgd"))
    assert sgd.trained < few.trained


def test_an_estimate_above_the_limit_is_said_with_what_to_lower() -> None:
    expected = memory.Estimate(2**30, 2**29, 3 * 2**30, 2**29)
    said = memory.outlook(expected, TrainSettings(memory_limit_gib=4))
    assert said == (
        "memory: about 5 GiB (weights 1, gradients and optimiser 0.5, activations 3, head 0.5), the limit is 4 GiB; "
        "this will hardly fit: lower train.batch_rows"
    )
    assert "hardly" not in memory.outlook(expected, TrainSettings(memory_limit_gib=6))


def test_a_peak_is_held_against_the_limit_and_without_one_never() -> None:
    assert memory.above_limit(TrainSettings(memory_limit_gib=4), 5.1) == "needs 5.1 GiB, the limit is 4 GiB"
    assert memory.above_limit(TrainSettings(memory_limit_gib=4), 4.0) == ""
    assert memory.above_limit(TrainSettings(), 500.0) == ""


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (MemoryError("std::bad_alloc"), True),
        (RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater than the maximum"), True),
        (RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPU…)"), True),
        (RuntimeError("[malloc_or_wait] Unable to allocate 80000000000 bytes."), True),
        (ValueError("shapes (2,3) and (4,5) do not match"), False),
    ],
)
def test_what_memory_says_is_told_from_other_errors(error: Exception, wanted: bool) -> None:
    assert memory.is_out_of_memory(error) is wanted


def test_a_cache_limit_reaches_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    before = mx.set_cache_limit(1 << 20)
    try:
        assert "cache limit 0.25 GiB" in memory.set_limits(TrainSettings(cache_limit_gib=0.25))
        assert mx.set_cache_limit(1 << 20) == 2**28
    finally:
        mx.set_cache_limit(before)
