"""Our training step, or our own code as a plain step: no shared prefix, logits at every token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.contenders.timing import timed
from benchmarks.contenders.training import ADAPTER, LEARNING_RATE, figures, read_task
from mlx_sentis.training import adapters
from mlx_sentis.training.batches import Batch, make_batch
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.prefix import shared_prefix_tokens
from mlx_sentis.training.step import make_train_step
from weights_bridge.settings import TrainSettings

# isort: split
import mlx.core as mx  # after mlx_sentis.training, which puts the fast BLAS under it
import mlx.optimizers as optimizers


def measure(prepared: str, rows: int, runs: int, plain: bool) -> dict[str, Any]:
    """Return the seconds of each counted step and what it trained.

    Args:
        prepared: the folder with the rows.
        rows: in the batch.
        runs: counted steps after one warm-up.
        plain: neither the shared prefix nor the head at labels only.
    """
    task = read_task(prepared, rows)
    prefix = 0 if plain else shared_prefix_tokens(task.every_row)
    batch = make_batch(task.rows, prefix, task.pad_id)
    batch = with_head_everywhere(batch) if plain else batch
    model = load_causal_lm(task.folder)
    adapters.add_adapters(model, ADAPTER, seed=0)
    step = make_train_step(model, optimizers.AdamW(LEARNING_RATE), TrainSettings())
    first, seconds = timed(lambda: step(batch), runs)
    return figures(
        seconds,
        loss=first.loss,
        computed_tokens=batch.prefix.size + batch.rows.size,
        trained_tokens=batch.trained_tokens,
        parameters=sum(array.size for array in adapters.adapter_tensors(model).values()),
        device="gpu" if mx.default_device() == mx.gpu else "cpu",
    ) | {"prefix_tokens": prefix}


def with_head_everywhere(batch: Batch) -> Batch:
    """Return the batch asking for logits at every position; only the labelled ones weigh."""
    labels, weights = np.zeros(batch.rows.size, np.int32), np.zeros(batch.rows.size, np.float32)
    labelled = batch.weights > 0
    labels[batch.positions[labelled]] = batch.labels[labelled]
    weights[batch.positions[labelled]] = 1.0
    return replace(batch, positions=np.arange(batch.rows.size, dtype=np.int32), labels=labels, weights=weights)
