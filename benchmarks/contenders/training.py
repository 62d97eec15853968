"""What the training contenders share: the same rows, the same adapter, the same way to report. Imports no framework.

Legend: `B` rows, `S` padded tokens of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weights_bridge.files import read_json, read_jsonl
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.settings import AdapterSettings

ADAPTER = AdapterSettings(type="lora", rank=16, alpha=16.0)  # LoRA: all contenders compute the same function
LEARNING_RATE = 1e-4
MULTIPLE = 16  # tokens; the trainer's own padding


@dataclass(frozen=True)
class Task:
    """What one step trains on.

    Attributes:
        folder: the base model.
        rows: the first rows of the training split.
        every_row: the whole split, which decides the shared prefix.
        pad_id: the padding token.
    """

    folder: ModelFolder
    rows: list[dict[str, Any]]
    every_row: list[dict[str, Any]]
    pad_id: int

    def padded_width(self) -> int:
        """Return S: the longest row, rounded up."""
        return -(-max(len(row["ids"]) for row in self.rows) // MULTIPLE) * MULTIPLE

    def trained_tokens(self) -> int:
        return sum(end - start for row in self.rows for start, end in row["trained"])


def read_task(prepared: str, rows: int) -> Task:
    """Return the task of a prepared folder.

    Args:
        prepared: with `recipe.json` and `data/train.jsonl`.
        rows: B.
    """
    recipe = read_json(Path(prepared) / "recipe.json")
    every = read_jsonl(Path(prepared) / "data" / "train.jsonl")
    return Task(open_model_folder(Path(recipe["model"]["path"])), every[:rows], every, recipe["pad_id"])


def figures(
    seconds: list[float], *, loss: float, computed_tokens: int, trained_tokens: int, parameters: int, device: str
) -> dict[str, Any]:
    """Return what a training contender reports.

    Args:
        seconds: of each counted step.
        loss: of the first step, nats per labelled token; equal for all contenders, B starts at zero.
        computed_tokens: tokens that go through the layers in a step, padding included.
        trained_tokens: labelled tokens of a step.
        parameters: trained numbers.
        device: `cpu`, `gpu` (MLX on Metal) or `mps` (torch on Metal).
    """
    return {
        "seconds": [round(one, 4) for one in seconds],
        "first_loss": round(loss, 5),
        "computed_tokens": computed_tokens,
        "trained_tokens": trained_tokens,
        "parameters": parameters,
        "device": device,
    }
