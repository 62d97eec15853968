"""What the training contenders share: the same rows, the same adapter, the same way to report. Imports no framework.

Legend: `B` rows, `S` padded tokens of a row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.train_cases import cases, made_rows
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.settings import AdapterSettings

ADAPTER = AdapterSettings(type="lora", rank=16, alpha=16.0)  # LoRA: all contenders compute the same function
LEARNING_RATE = 1e-4
MULTIPLE = 32  # tokens; mlx-lm's own padding, and one more


@dataclass(frozen=True)
class Task:
    """What one step trains on.

    Attributes:
        folder: the base model.
        rows: of the batch.
        pad_id: the padding token.
    """

    folder: ModelFolder
    rows: list[dict[str, Any]]
    pad_id: int

    def padded_width(self) -> int:
        """Return S: the longest row, rounded up as mlx-lm does."""
        return -(-max(len(row["ids"]) for row in self.rows) // MULTIPLE) * MULTIPLE

    def trained_tokens(self) -> int:
        return sum(end - start for row in self.rows for start, end in row["trained"])


def is_gemma(folder: ModelFolder) -> bool:
    return folder.config["model_type"].startswith("gemma3")


def read_task(path: str, case: str, rows: int) -> Task:
    """Return the task of a case.

    Args:
        path: the model directory.
        case: its name.
        rows: B.
    """
    folder = open_model_folder(Path(path))
    found = next(one for one in cases(is_gemma(folder)) if one.name == case)
    return Task(folder, made_rows(found, rows, folder.config["vocab_size"]), 0)


def figures(
    seconds: list[float],
    *,
    core_seconds: list[float],
    losses: list[float],
    computed_tokens: int,
    head_tokens: int,
    attention_pairs: int,
    task: Task,
    parameters: int,
    device: str,
) -> dict[str, Any]:
    """Return what a training contender reports.

    Args:
        seconds: of each counted step.
        core_seconds: the same, summed over the cores this process had; hardly moves where others use them too.
        losses: of each step from the warm-up on, nats per labelled token; the first is equal for all contenders.
        computed_tokens: tokens that go through the layers in a step, padding included.
        head_tokens: hidden states that get logits.
        attention_pairs: (query, key) pairs of one layer, masked ones included where they are computed.
        task: what was trained on.
        parameters: trained numbers.
        device: `cpu`, `gpu` (MLX on Metal) or `mps` (torch on Metal).
    """
    return {
        "seconds": [round(one, 4) for one in seconds],
        "core_seconds": [round(one, 3) for one in core_seconds],
        "first_loss": round(losses[0], 5),
        "losses": [round(loss, 5) for loss in losses],
        "computed_tokens": computed_tokens,
        "trained_tokens": task.trained_tokens(),
        "gflop": round(products_gflop(task.folder, computed_tokens, head_tokens, attention_pairs), 1),
        "parameters": parameters,
        "device": device,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def products_gflop(folder: ModelFolder, tokens: int, head_tokens: int, pairs: int) -> float:
    """Return the work of a step in matrix products, 10⁹ operations: forward, and backward to the activations.

    Frozen weights need no gradient of their own: 2 products each. Attention needs 2 forward and 4 backward.
    """
    config = folder.config
    linear = sum(out * width for out, width in folder.architecture.linear_modules(config).values())
    head = config["vocab_size"] * config["hidden_size"]
    width = config["num_attention_heads"] * config.get(
        "head_dim", config["hidden_size"] // config["num_attention_heads"]
    )
    attention = config["num_hidden_layers"] * 6 * 2 * pairs * width
    return (4 * (linear * tokens + head * head_tokens) + attention) / 1e9
