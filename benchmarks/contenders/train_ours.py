"""Our training step."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.timing import timed_with_cores
from benchmarks.contenders.training import ADAPTER, LEARNING_RATE, figures, read_task
from benchmarks.turns import Turn, give_back
from mlx_sentis.training import BLAS, adapters
from mlx_sentis.training.batches import Batch, make_batch
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.sharing import sharing_of
from mlx_sentis.training.step import make_train_step
from weights_bridge.settings import TrainSettings

# isort: split
import mlx.core as mx  # after mlx_sentis.training, which puts the fast BLAS under it
import mlx.optimizers as optimizers


def measure(model: str, case: str, rows: int, runs: int, turns: str | None = None) -> dict[str, Any]:
    """Return the seconds of each counted step and what it trained.

    Args:
        model: the model directory.
        case: which rows.
        rows: in the batch.
        runs: counted steps after one warm-up.
        turns: the folder of its `Turn`, where contenders take turns.
    """
    task = read_task(model, case, rows)
    batch = make_batch(task.rows, sharing_of(task.rows), task.pad_id)
    network = load_causal_lm(task.folder)
    adapters.add_adapters(network, ADAPTER, seed=0)
    step = make_train_step(network, optimizers.AdamW(LEARNING_RATE), TrainSettings(gradient_clip=0.0))
    losses: list[float] = []
    seconds, core_seconds = timed_with_cores(
        lambda: losses.append(step([batch]).loss), runs, Turn(turns, lambda: (mx.clear_cache(), give_back()))
    )
    return figures(
        seconds,
        core_seconds=core_seconds,
        losses=losses,
        computed_tokens=batch.computed_tokens,
        head_tokens=batch.labels.size,
        attention_pairs=attention_pairs(batch),
        task=task,
        parameters=sum(array.size for array in adapters.adapter_tensors(network).values()),
        device="gpu" if mx.default_device() == mx.gpu else "cpu",
    ) | {"shared_tokens": batch.shared_tokens, "passes": len(batch.passes), "blas": BLAS.name}


def attention_pairs(batch: Batch) -> int:
    """Return the (query, key) pairs of one layer."""
    before: list[int] = []
    pairs = 0
    for one in batch.passes:
        length = one.ids.shape[1] + (before[one.parent] if one.parent >= 0 else 0)
        before.append(length)
        pairs += one.ids.size * length
    return pairs
