"""The picture of how long the rows are: `data/lengths.png`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.canvas import COLOURS, INK, canvas, finish
from weights_bridge.compare import Array

MOST_BINS = 40


def length_bins(shortest: int, longest: int) -> Array:
    """Return the edges of bins from the shortest to the longest row: multiples of their width, about `MOST_BINS`."""
    width = max(1, -(-(longest - shortest + 1) // MOST_BINS))
    return np.arange(shortest // width * width, longest + width + 1, width)


def plot_lengths(lengths: Mapping[str, Array], window: int, path: Path) -> None:
    """Draw how many rows of each split have how many tokens, stacked.

    Args:
        lengths: split to the tokens of its rows.
        window: the longest row allowed, in tokens; drawn where it lies near the longest row.
        path: the PNG.
    """
    shown = {split: rows for split, rows in lengths.items() if len(rows)}
    every = np.concatenate([*shown.values()])
    figure, axes = canvas("Length of the prepared rows", "tokens in a row", "rows")
    names = [f"{split} ({len(rows)})" for split, rows in shown.items()]
    bins = length_bins(int(every.min()), int(every.max()))
    axes.hist([*shown.values()], bins, stacked=True, color=COLOURS[: len(shown)], label=names, edgecolor="white")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    _mark(axes, f"median {np.median(every):g}", float(np.median(every)))
    if window < 1.5 * every.max():
        _mark(axes, f"data.max_tokens {window}", window)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.xaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes, path, columns=len(shown))


def _mark(axes: Any, name: str, at: float) -> None:
    """Draw a dashed line with its name on the side where there is room."""
    axes.axvline(at, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
    left, right = axes.get_xlim()
    side, gap = ("left", 4) if at < (left + right) / 2 else ("right", -4)
    where = (at, axes.get_ylim()[1])
    axes.annotate(name, where, (gap, -4), textcoords="offset points", ha=side, va="top", color=INK, fontsize=9.5)
