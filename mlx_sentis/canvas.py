"""What all plots of the project look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weights_bridge.files import written_whole

INK, FAINT, RULE = "#22303c", "#8a97a3", "#e3e8ec"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: told apart by all eyes
SIZE_INCHES, DOTS_PER_INCH = (8.0, 4.5), 150


def canvas(title: str, x: str, y: str) -> tuple[Any, Any]:
    """Return a new figure and its axes, without a window system.

    Args:
        title: what is shown.
        x: what runs along, with its unit.
        y: what runs up, with its unit.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)  # no window system is asked, and pyplot's global state is left alone
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", color=INK, fontsize=14, fontweight="bold", pad=12)
    dress(axes, x, y)
    return figure, axes


def dress(axes: Any, x: str, y: str) -> None:
    """Give axes the look of all plots; a figure may have more than one.

    Args:
        axes: matplotlib's.
        x: what runs along, with its unit.
        y: what runs up, with its unit.
    """
    axes.set_xlabel(x, color=INK, fontsize=11)
    axes.set_ylabel(y, color=INK, fontsize=11)
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)


def finish(figure: Any, axes: Any, path: Path, *, columns: int = 3) -> None:
    """Put the legend below the axes and write the PNG, whole or not at all; equal figures give equal bytes.

    Args:
        figure: from `canvas`.
        axes: from `canvas`.
        path: the PNG.
        columns: of the legend.
    """
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "ncols": columns}
    axes.legend(**place, frameon=False, fontsize=9.5, labelcolor=INK)
    with written_whole(path) as beside:
        figure.savefig(beside, format="png", metadata={"Software": None})
