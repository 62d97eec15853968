"""The picture of how long the rows are: `data/lengths.png`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlx_sentis.canvas import COLOURS, INK, canvas, finish
from weights_bridge.compare import Array

MOST_BINS = 40


def length_bins(longest: int) -> Array:
    """Return the edges of the bins up to the longest row: whole numbers of tokens, at most `MOST_BINS` of them."""
    width = max(1, -(-longest // MOST_BINS))
    return np.arange(0, longest + width + 1, width)


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
    bins = length_bins(int(every.max()))
    axes.hist([*shown.values()], bins, stacked=True, color=COLOURS[: len(shown)], label=names, edgecolor="white")
    marks = {f"median {np.median(every):g}": float(np.median(every))}
    if window < 1.5 * every.max():
        marks[f"data.max_tokens {window}"] = window
    top = axes.get_ylim()[1] * 1.08
    axes.set_ylim(0, top)
    for (name, at), align in zip(marks.items(), ("left", "right"), strict=False):
        axes.axvline(at, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
        offset = (4 if align == "left" else -4, -4)
        axes.annotate(name, (at, top), offset, textcoords="offset points", ha=align, va="top", color=INK, fontsize=9.5)
    axes.set_xlim(left=0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes, path)
