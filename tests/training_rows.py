"""Rows that look like rendered ones: a long shared prompt, then differing turns."""

from __future__ import annotations

from typing import Any

import numpy as np

PREFIX = 48  # longer than toy gemma's window of 32


def rendered_rows(*tails: int, prefix: int = PREFIX, seed: int = 3, vocab: int = 420) -> list[dict[str, Any]]:
    """Return rows that share `prefix` tokens and then have `tails` more, the last third of each trained."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(6, vocab, prefix).tolist()
    rows = []
    for number, tail in enumerate(tails):
        # the first tail token differs from row to row, so that `prefix` is exactly what is shared
        ids = [*shared, 6 + number, *rng.integers(6, vocab, tail - 1).tolist()]
        start = len(ids) - max(1, tail // 3)
        row = {"id": f"train-{number:04}", "ids": ids, "prompt_tokens": start, "trained": [[start, len(ids)]]}
        rows.append(row)
    return rows
