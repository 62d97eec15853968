"""How cost grows: seconds of a step with its tokens, memory of the head with the vocabulary."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.contenders.timing import timed
from benchmarks.contenders.training import ADAPTER, LEARNING_RATE
from mlx_sentis.training import adapters
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.head import frozen_head_loss_sum
from mlx_sentis.training.sharing import sharing_of
from mlx_sentis.training.step import make_train_step
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import TrainSettings

# isort: split
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optimizers

ROWS, ROW_TOKENS = (2, 4, 8, 16, 32), 128
VOCABULARIES, LABELS, WIDTH = (2**14, 2**15, 2**16, 2**17, 2**18), 2048, 64


def measure(model: str, runs: int) -> dict[str, Any]:
    """Return both curves as rows.

    Args:
        model: the directory of a cut model.
        runs: counted steps after one warm-up.
    """
    return {"tokens": tokens_curve(model, runs), "vocabulary": vocabulary_curve()}


def tokens_curve(model: str, runs: int) -> list[dict[str, Any]]:
    """Return tokens and the fastest of the counted steps for growing batches of equal rows."""
    network = load_causal_lm(open_model_folder(Path(model)))
    adapters.add_adapters(network, ADAPTER, seed=0)
    step = make_train_step(network, optimizers.AdamW(LEARNING_RATE), TrainSettings())
    found = []
    for count in ROWS:
        made = [[6 + (i * 131 + at * 17) % 400 for at in range(ROW_TOKENS)] for i in range(count)]
        rows = [{"id": str(i), "ids": ids, "trained": [[120, 128]]} for i, ids in enumerate(made)]
        batch = make_batch(rows, sharing_of(rows), 0)
        _, seconds = timed(lambda batch=batch: step([batch]), runs)
        best = {"seconds": round(min(seconds), 4), "median": round(statistics.median(seconds), 4)}
        found.append({"tokens": batch.computed_tokens} | best)
    return found


def vocabulary_curve() -> list[dict[str, Any]]:
    """Return the peak of loss and gradient of the head beyond its weight and states, GiB."""
    found = []
    for vocabulary in VOCABULARIES:
        weight = mx.random.normal((vocabulary, WIDTH), key=mx.random.key(0))
        hidden = mx.random.normal((LABELS, WIDTH), key=mx.random.key(1))
        labels = mx.arange(LABELS)
        mx.eval(weight, hidden, labels)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        run = mx.value_and_grad(
            lambda states, w=weight, ids=labels: frozen_head_loss_sum(states, w, ids, mx.ones(LABELS))
        )
        mx.eval(run(hidden))
        peak = (mx.get_peak_memory() - before) / 2**30
        all_logits = LABELS * vocabulary * 4 / 2**30
        found.append({"vocabulary": vocabulary, "peak_gib": round(peak, 3), "all_logits_gib": round(all_logits, 3)})
        del weight, run
    return found
