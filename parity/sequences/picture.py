"""The picture of a sequence: what the full reference and each side say over time, and every step's level below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.canvas import COLOURS, INK, canvas, dress
from parity.sequences.acceptance import Measured, Side
from parity.sequences.levels import step_levels
from weights_bridge.files import written_whole

ROOM_DB = 12  # above the best and below the worst


def draw_sequence(measured: Measured, path: Path) -> bool:
    """Draw the first output: values where a step is one number, and every step's level.

    Returns:
        Whether there was anything to draw.
    """
    name = next((name for name in measured.reference if any(name in side.outputs for side in measured.sides)), None)
    if name is None:
        return False
    wanted, spec = measured.reference[name], measured.spec
    seconds = np.arange(len(wanted)) * (spec.chunk / spec.rate if spec.rate else 1)
    unit = "seconds" if spec.rate else "step"
    scalar = wanted.size == len(wanted)
    figure, axes = canvas(f"{name}, step by step, against the full reference", unit, name)
    places = figure.add_gridspec(2 if scalar else 1, 1, height_ratios=[3, 2] if scalar else [1])
    axes.set_subplotspec(places[0])
    below = figure.add_subplot(places[1], sharex=axes) if scalar else axes
    if scalar:
        axes.plot(seconds, wanted.ravel(), color=INK, linewidth=4.5, alpha=0.25, label="full reference")
        axes.set_xlabel("")
    dress(below, unit, "step's level (dB)" if scalar else "step's level in dB (higher is closer)")
    drawn: list[float] = [measured.budget_db]
    for at, side in enumerate(_drawn(measured, name)):
        colour, style, marker = COLOURS[at % 6], ("-", "--", ":")[at % 3], ("o", "s", "^")[at % 3]
        found = np.asarray(side.outputs[name])
        if scalar:
            axes.plot(seconds, found.ravel(), color=colour, linewidth=1.5, linestyle=style, label=_words(side))
        levels = step_levels(wanted, found)
        points = [(x, y) for x, y in zip(seconds, levels, strict=True) if y is not None and np.isfinite(y)]
        drawn += [y for _, y in points]
        if points:  # what is exact has no level
            look = {"color": colour, "marker": marker, "markersize": 2.2, "linestyle": "none"}
            below.plot(*zip(*points, strict=True), label=None if scalar else _words(side), **look)
        if None in levels:
            below.set_xlabel(f"{unit} (without a mark: exact)")
    _draw_budget(below, measured.budget_db)
    below.set_ylim(min(0.0, min(drawn)) if min(drawn) < 20 else min(drawn) - ROOM_DB, max(drawn) + ROOM_DB)
    _save(figure, axes if scalar else below, path)
    return True


def _draw_budget(axes: Any, budget_db: float) -> None:
    axes.axhline(budget_db, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
    axes.annotate(
        f"budget: {budget_db:g} dB",
        xy=(0.995, budget_db),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=INK,
        fontsize=9.5,
    )


def _drawn(measured: Measured, name: str) -> list[Side]:
    """Return the sides that have the output in the reference's size; of our two levels the shipped one."""
    fitting = [s for s in measured.sides if np.size(s.outputs.get(name, ())) == measured.reference[name].size]
    return [side for side in fitting if side.name != "off"]


def _words(side: Side) -> str:
    return {"all": "ONNX Runtime", "recorded": "the recorded loop"}.get(side.name, side.name)


def _save(figure: Any, axes: Any, path: Path) -> None:
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "outside lower left", "ncols": 3}
    figure.legend(handles, labels, **place, frameon=False, fontsize=9.5, labelcolor=INK)
    with written_whole(path) as beside:
        figure.savefig(beside, format="png", metadata={"Software": None})
