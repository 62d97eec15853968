"""Which prepared rows gate A0 is measured on."""

from __future__ import annotations

from typing import Any

from parity.fixtures import LONG_TOKENS
from weights_bridge.errors import StageError

Row = dict[str, Any]


def choose_rows(rows: list[Row], count: int, window: int | None) -> list[Row]:
    """Return the longest row, others spread over the lengths, and a joined one when none is long enough.

    A wrong rotary base hides in prompts under 100 tokens and a wrong window in rows shorter than it, so at least one
    row is longer than both.

    Args:
        rows: prepared rows with `ids` and `trained`.
        count: how many, ≥ 1.
        window: the sliding window in tokens, None without one.

    Raises:
        StageError: there are no rows.
    """
    if not rows:
        raise StageError("data/train.jsonl: no rows for gate A0", hint="run `mlx-sentis prepare` first")
    order = sorted(rows, key=lambda row: (-len(row["ids"]), row["id"]))
    places = sorted({round(k * (len(order) - 1) / max(1, count)) for k in range(count)})
    chosen = [order[place] for place in places]
    wanted = max(LONG_TOKENS, (window or 0) + 1)
    return chosen if len(chosen[0]["ids"]) >= wanted else [joined(order, wanted), *chosen[: max(1, count - 1)]]


def joined(rows: list[Row], tokens: int) -> Row:
    """Return whole rows one after another until `tokens` are reached; labels keep their tokens."""
    ids: list[int] = []
    trained: list[list[int]] = []
    names: list[str] = []
    while len(ids) < tokens:
        row = rows[len(names) % len(rows)]
        trained += [[start + len(ids), end + len(ids)] for start, end in row["trained"]]
        ids += row["ids"]
        names.append(row["id"])
    return {"id": "+".join(names), "ids": ids, "trained": trained}


def crossed(rows: list[Row], partners: list[Row]) -> list[Row]:
    """Return each row with its last answer replaced by another row's.

    Gradients are compared where they are large. A row that the model answers well has gradients of 1 − p with p near
    1, whose relative error is the absolute error of the logits: SmolLM2 after the demo's training keeps 73 dB at the
    worst tensor on rows it answers well, in MLX and torch fp32 alike, and above 90 dB on the same prompts with
    another row's answer.

    Args:
        rows: rows with `ids` and `trained`.
        partners: where answers come from; a row without a partner of another answer keeps its own.
    """
    return [_with_answer(row, next((p for p in partners if _answer(p) != _answer(row)), row)) for row in rows]


def _answer(row: Row) -> list[int]:
    start, end = row["trained"][-1]
    return row["ids"][start:end]


def _with_answer(row: Row, other: Row) -> Row:
    start = row["trained"][-1][0]
    ids = row["ids"][:start] + _answer(other)
    return {"id": f"{row['id']}×{other['id']}", "ids": ids, "trained": [*row["trained"][:-1], [start, len(ids)]]}
