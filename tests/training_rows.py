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


def nested_rows(seed: int = 5, vocab: int = 420) -> list[dict[str, Any]]:
    """Return rows in a tree: all share `PREFIX` tokens, `a` rows 64 more, some of these 144 more, `b` rows 130 more."""
    rng = np.random.default_rng(seed)
    draw = lambda count: rng.integers(6, vocab, count).tolist()  # noqa: E731
    shared, a, b = draw(PREFIX), [6, *draw(63)], [7, *draw(129)]
    deep = [8, *draw(143)]
    stems = {"a1": a, "a2": a, "a3": [*a, *deep], "a4": [*a, *deep], "b1": b, "b2": b, "c1": [9]}
    rows = []
    for number, (name, stem) in enumerate(stems.items()):
        ids = [*shared, *stem, 10 + number, *draw(9 + 3 * number)]
        rows.append({"id": name, "ids": ids, "prompt_tokens": len(ids) - 4, "trained": [[len(ids) - 4, len(ids)]]})
    return rows
