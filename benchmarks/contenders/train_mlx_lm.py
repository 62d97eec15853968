"""mlx-lm's own LoRA layers, loss and training loop, on our rows and with the same BLAS under MLX."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.training import ADAPTER, LEARNING_RATE, Task, figures, read_task
from benchmarks.turns import Turn
from mlx_sentis.training.definitions import CausalLM, load_causal_lm
from mlx_sentis.training.step import should_compile

# isort: split
import mlx.core as mx  # after mlx_sentis.training, which puts the fast BLAS under it
import mlx.nn as nn
import mlx.optimizers as optimizers
from mlx.utils import tree_flatten
from mlx_lm.tuner.callbacks import TrainingCallback
from mlx_lm.tuner.trainer import TrainingArgs, train
from mlx_lm.tuner.utils import linear_to_lora_layers


class Heard(TrainingCallback):
    """Keeps what the loop reports of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.core_seconds: list[float] = []
        self.core_began = 0.0

    def on_train_loss_report(self, train_info: dict[str, Any]) -> None:
        self.seconds.append(1 / train_info["iterations_per_second"])
        self.losses.append(train_info["train_loss"])
        self.core_seconds.append(time.process_time() - self.core_began)


class ScaledEmbedding(nn.Module):
    """An embedding table whose rows are scaled when they are looked up, and not when it is the head.

    Args:
        table: mlx-lm's own.
        scale: the factor.
    """

    def __init__(self, table: nn.Embedding, scale: float) -> None:
        super().__init__()
        self.table, self.scale = table, scale

    def __call__(self, ids: mx.array) -> mx.array:
        return self.table(ids) * self.scale

    def as_linear(self, hidden: mx.array) -> mx.array:
        return self.table.as_linear(hidden)


def mended(model: CausalLM) -> Any:
    """Return mlx-lm's network, computing the same function as the other contenders.

    mlx-lm's Gemma 3 multiplies embeddings by bf16(√H); the factor √H / bf16(√H) undoes that, as our own mend does:
    Gemma-3-270M's first loss is 1.7e-3 nats from ours without it, 4.8e-4 with it (one sum over 262,144 logits).
    """
    network, scale = model.network, model.embedding_mend
    if scale != 1.0:
        network.model.embed_tokens = ScaledEmbedding(network.model.embed_tokens, scale)
    return network


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
    if not should_compile():
        mx.disable_compile()  # as in our own step: compiling on the CPU costs minutes and gains nothing
    network = mended(load_causal_lm(task.folder))
    network.freeze()
    adapter = {"rank": ADAPTER.rank, "scale": ADAPTER.alpha / ADAPTER.rank, "dropout": 0.0}
    linear_to_lora_layers(network, len(network.layers), adapter)
    heard = Heard()
    with tempfile.TemporaryDirectory() as work:
        file = str(Path(work) / "adapters.safetensors")
        told = TrainingArgs(rows, runs + 1, steps_per_report=1, steps_per_save=runs + 2, adapter_file=file)
        train(
            network,
            optimizers.AdamW(LEARNING_RATE),
            task.rows,
            args=told,
            iterate_batches=lambda **_: same_batch(task, Turn(turns, mx.clear_cache), heard),
            training_callback=heard,
        )
    return figures(
        heard.seconds[1:],
        core_seconds=heard.core_seconds[1:],
        losses=heard.losses,
        computed_tokens=rows * task.padded_width(),
        head_tokens=rows * task.padded_width(),
        attention_pairs=rows * task.padded_width() ** 2,
        task=task,
        parameters=sum(array.size for _, array in tree_flatten(network.trainable_parameters())),  # pyright: ignore
        device="gpu" if mx.default_device() == mx.gpu else "cpu",
    )


def same_batch(task: Task, turn: Turn, heard: Heard) -> Iterator[tuple[mx.array, mx.array]]:
    """Yield the batch again and again: ids [B, S + 1] and (first, last) trained position of each row [B, 2].

    Padded as mlx-lm's own iterator pads. Its loss counts both ends; the iterator gives the row's length as the last
    one, which trains one padding token a row. Here the last trained token is given, so that the losses are equal.
    """
    ids = np.full((len(task.rows), task.padded_width() + 1), task.pad_id, np.int32)
    spans = []
    for index, row in enumerate(task.rows):
        ids[index, : len(row["ids"])] = row["ids"]
        spans.append((row["trained"][0][0], row["trained"][-1][1] - 1))
    while True:
        turn()  # mlx-lm's clock runs between two batches
        heard.core_began = time.process_time()
        yield mx.array(ids), mx.array(spans)  # pyright: ignore[reportArgumentType]
