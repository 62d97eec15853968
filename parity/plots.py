"""Plots of a run as PNG: the loss curve, and the error by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.canvas import COLOURS, INK, canvas, finish

MARKERS = ("o", "s", "^", "D", "v", "P")
TICKS = {"embeddings": "emb."}


def plot_loss(events: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw the training loss per update, its moving average and the validation loss per epoch.

    Args:
        events: lines of `log.jsonl`; `step` events carry `train/loss`, `epoch_done` events `valid_loss`.
        path: the PNG.

    Returns:
        Whether there was anything to draw.
    """
    steps = [(e["step"], e["train/loss"]) for e in events if e.get("event") == "step" and e["train/loss"] is not None]
    valid = [(e["step"], e["valid_loss"]) for e in events if e.get("event") == "epoch_done" and e.get("valid_loss")]
    if not steps:
        return False
    figure, axes = canvas("Loss at labelled tokens", "update", "cross-entropy (nats per token)")
    x, y = zip(*steps, strict=True)
    axes.plot(x, y, color=COLOURS[0], alpha=0.3, linewidth=1.2, label="training, each update")
    axes.plot(x, moving_average(y), color=COLOURS[0], linewidth=2.2, label="training, moving average")
    if valid:
        axes.plot(*zip(*valid, strict=True), "o-", color=COLOURS[1], linewidth=1.6, markersize=7, label="validation")
    lows = [value for _, value in (*steps, *valid)]
    if min(lows) > 0 and max(lows) / min(lows) > 30:
        _plain_log_scale(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlim(min(x) - 0.5, max(x) + 0.5)
    finish(figure, axes, path)
    return True


def plot_error_by_layer(
    series: Mapping[str, Mapping[str, float | None]], budgets_db: Mapping[str, float], path: Path
) -> bool:
    """Draw PSNR by depth, one line per series; higher is closer.

    Args:
        series: name to depth (`layer 0`, …, `logits`) to dB; None is exact and has no point.
        budgets_db: name to the least dB that passes; drawn as a dashed line.
        path: the PNG.

    Returns:
        Whether there was anything to draw.
    """
    places = depths(series)
    if not any(level is not None for levels in series.values() for level in levels.values()):
        return False
    figure, axes = canvas("Agreement by depth", "layer", "PSNR in dB (higher is closer)")
    for at, (name, levels) in enumerate(series.items()):
        points = [(places[depth], level) for depth, level in levels.items() if level is not None]
        if points:
            style = {"color": COLOURS[at % 6], "marker": MARKERS[at % 6], "markersize": 4.5, "linewidth": 1.6}
            axes.plot(*zip(*sorted(points), strict=True), label=name, **style)
    for db in sorted(set(budgets_db.values())):
        names = ", ".join(name for name, value in budgets_db.items() if value == db)
        axes.axhline(db, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
        spot = {
            "xy": (0.995, db),
            "xycoords": ("axes fraction", "data"),
            "xytext": (0, 3),
            "textcoords": "offset points",
        }
        axes.annotate(f"budget of {names}: {db:g} dB", **spot, ha="right", va="bottom", color=INK, fontsize=9.5)
    drawn = {depth for levels in series.values() for depth, level in levels.items() if level is not None}
    shown = [name for name in _thinned(places) if name.startswith("layer ") or name in drawn]
    axes.set_xticks([places[name] for name in shown], [TICKS.get(name, name.removeprefix("layer ")) for name in shown])
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, min(budgets_db.values(), default=low) - 8), high + 4)
    finish(figure, axes, path)
    return True


def moving_average(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and its neighbours on both sides, over an eighth of the series (at least 3)."""
    reach = max(1, len(values) // 16)
    windows = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def depths(series: Mapping[str, Mapping[str, float | None]]) -> dict[str, int]:
    """Return place to position on the axis: embeddings, layers by number, everything else behind them."""
    names = dict.fromkeys(name for levels in series.values() for name in levels)
    layers = {name: int(name.removeprefix("layer ")) for name in names if name.startswith("layer ")}
    layers |= {name: -1 for name in names if name == "embeddings"}
    last = max(layers.values(), default=-1)
    others = [name for name in names if name not in layers]
    return dict(sorted(layers.items(), key=lambda item: item[1])) | {n: last + 1 + i for i, n in enumerate(others)}


def _thinned(places: Mapping[str, int], most: int = 16) -> list[str]:
    layers = [name for name in places if name.startswith("layer ")]  # the others always have their name
    stride = -(-len(layers) // most) if layers else 1
    return layers[::stride] + [name for name in places if name not in layers]


def _plain_log_scale(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
