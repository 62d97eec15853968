"""The cases of `bench train`: which rows one step trains on. Imports no framework."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

SEED = 7


@dataclass(frozen=True)
class Case:
    """Rows of a shape.

    Attributes:
        name: as `--json` has it.
        title: what the rows are.
        shared: tokens all rows begin with.
        own: the shortest and the longest untrained part of a row behind them.
        trained: share of a row's own tokens that are trained at its end; an int is that many tokens.
        over_mlx_lm: (4 rows, all rows) the least rows/s over mlx-lm's.
        memory: the most of mlx-lm's peak, with all rows; None is not a measure of this case.
        over_torch: the least rows/s over the torch loop's; None is reported only.
    """

    name: str
    title: str
    shared: int
    own: tuple[int, int]
    trained: int | float
    over_mlx_lm: tuple[float, float]
    memory: float | None = None
    over_torch: float | None = None


def cases(gemma: bool) -> list[Case]:
    """Return the table's cases.

    Args:
        gemma: the model's `model_type` is Gemma 3; its head is 63 % of a forward pass.
    """
    shared = 300 if gemma else 400
    return [
        Case(
            "shared", f"{shared} shared + 40 + 25 tokens", shared, (40, 40), 25, (2.0, 6.0), 0.25 if gemma else 0.2, 1.0
        ),
        Case("mixed", "nothing shared, 15 % trained, mixed lengths", 0, (40, 320), 0.15, (1.2, 2.2 if gemma else 1.6)),
        Case("everything", "every token trained, equal lengths", 0, (1, 1), 191, (1.0, 1.0)),
    ]


def all_rows(gemma: bool) -> int:
    """Return how many rows `--full` takes."""
    return 8 if gemma else 16


def made_rows(case: Case, rows: int, vocabulary: int) -> list[dict[str, Any]]:
    """Return prepared rows (`id`, `ids`, `trained`) of a case, the same on every machine.

    Args:
        case: which.
        rows: how many.
        vocabulary: ids stay below it and below 30,000, and above those of special tokens.
    """
    source = random.Random(SEED)

    def draw(count: int) -> list[int]:
        return [source.randrange(300 if vocabulary > 1000 else 6, min(vocabulary, 30000)) for _ in range(count)]

    shared, made = draw(case.shared), []
    least, most = case.own
    for number in range(rows):
        own = least + (most - least) * number // max(1, rows - 1)
        trained = case.trained if isinstance(case.trained, int) else round(own * case.trained / (1 - case.trained))
        ids = [*shared, 310 + number if vocabulary > 1000 else 6 + number, *draw(own + trained - 1)]
        made.append({"id": f"{case.name}-{number}", "ids": ids, "trained": [[len(ids) - trained, len(ids)]]})
    source.shuffle(made)
    return made
