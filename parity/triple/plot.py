"""The table as a picture: one strip per row, a stroke per output, the worst of them marked.

A measured row's mark is filled, a predicted one's is hollow, so that a print in grey tells them apart as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.canvas import COLOURS, FAINT, INK, canvas
from parity.triple.rows import EDGES, EdgeName, Row
from weights_bridge.files import written_whole

COLOUR = dict(zip(EDGES, COLOURS, strict=False))
ROW_INCHES, MOST_ROWS = 0.42, 24
WIDTH_INCHES = 9.5


def draw_triple(rows: Sequence[Row], title: str, path: Path) -> bool:
    """Draw PSNR per row.

    Args:
        rows: of the table; beyond `MOST_ROWS` those that pass are left out first, which the title then says.
        title: what was measured.
        path: the PNG.

    Returns:
        Whether there was anything to draw.
    """
    if not rows:
        return False
    shown = _chosen(rows)
    more = f" ({len(shown)} of {len(rows)} rows)" if len(shown) < len(rows) else ""
    figure, axes = canvas(f"{title}{more}", "PSNR in dB of every output; right is closer", "")
    figure.set_size_inches(WIDTH_INCHES, 1.8 + ROW_INCHES * len(shown))
    levels = [r.psnr_db for row in shown for r in row.results if r.psnr_db is not None]
    budgets = [row.budget_db for row in shown]
    low, high = min([*levels, *budgets]) - 10, max([*levels, *budgets]) + 8
    for at, row in enumerate(shown):
        _strip(axes, len(shown) - 1 - at, row, low, high)
    _labels(axes, shown, low, high)
    _legend(axes, shown)
    with written_whole(path) as beside:
        figure.savefig(beside, format="png", metadata={"Software": None})
    return True


def _chosen(rows: Sequence[Row]) -> list[Row]:
    if len(rows) <= MOST_ROWS:
        return list(rows)
    failed = [row for row in rows if not row.passed][:MOST_ROWS]
    kept = set(map(id, [*failed, *[row for row in rows if row.passed][: MOST_ROWS - len(failed)]]))
    return [row for row in rows if id(row) in kept]


def _strip(axes: Any, y: int, row: Row, low: float, high: float) -> None:
    """Draw one row: outputs as strokes, its budget as a bar, the worst as a mark, what has no dB as words."""
    colour = COLOUR[row.edge]
    levels = [result.psnr_db for result in row.results if result.psnr_db is not None]
    axes.plot(levels, [y] * len(levels), "|", color=colour, alpha=0.35, markersize=9)
    axes.plot([row.budget_db] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.6)
    worst = row.worst
    if worst.psnr_db is not None:
        filled = colour if not row.sentis.startswith("predicted") else "white"
        style = {"markerfacecolor": filled, "markeredgecolor": colour, "markersize": 8.5, "markeredgewidth": 1.8}
        axes.plot([worst.psnr_db], [y], "o" if row.passed else "X", **style)
    elif worst.reason == "exact":
        axes.text(high, y, "exact", ha="right", va="center", color=colour, fontsize=9.5)
    else:
        said = worst.detail if worst.reason == row.verdict else worst.reason
        axes.text(low + 1, y, f"{row.verdict}: {said}"[:60], ha="left", va="center", color=INK, fontsize=9.5)


def _labels(axes: Any, shown: Sequence[Row], low: float, high: float) -> None:
    axes.grid(visible=False)
    axes.grid(axis="x", color="#e3e8ec", linewidth=1)
    names = []
    for row in shown:
        origin = "" if row.edge == "A" else f"\n{row.sentis}"
        names.append(f"{row.edge}  {row.fixture}{origin}")
    places = [len(shown) - 1 - at for at in range(len(shown))]
    axes.set_yticks(places, names, fontsize=8.5)
    axes.set_xlim(low, high + 1)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.spines["left"].set_visible(True)
    axes.spines["left"].set_color(FAINT)


def _legend(axes: Any, shown: Sequence[Row]) -> None:
    from matplotlib.lines import Line2D

    present: list[EdgeName] = [edge for edge in EDGES if any(row.edge == edge for row in shown)]
    handles = [
        Line2D([], [], color=COLOUR[edge], marker="o", linestyle="", label=f"{edge}: {EDGES[edge].sides}")
        for edge in present
    ]
    kinds = {row.sentis.split(" ")[0] for row in shown if row.edge != "A"}
    marks = {"measured": INK, "predicted": "white"}
    handles += [
        Line2D([], [], marker="o", linestyle="", markerfacecolor=marks[kind], markeredgecolor=INK, label=f"{kind}")
        for kind in sorted(kinds)
    ]
    if any(row.verdict == "FAIL" and row.worst.psnr_db is not None for row in shown):
        handles.append(Line2D([], [], color=INK, marker="X", linestyle="", label="below its budget"))
    handles.append(Line2D([], [], color=INK, linewidth=1.6, marker="|", linestyle="", markersize=12, label="budget"))
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.9 / axes.figure.get_size_inches()[1] * 1.2)}
    axes.legend(handles=handles, **place, ncols=3, frameon=False, fontsize=9, labelcolor=INK)
