"""What gate A0 measured, as tables and as a picture: three columns by tensor, and agreement by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.a0_compare import COLUMNS, Level
from parity.plots import plot_error_by_layer
from parity.tables import table

WORST = 5
DEPTH_SERIES = ("forward", "forward, each layer alone", "gradients", "gradients, each layer alone")


def worst_columns(columns: Sequence[Mapping[str, Level]], most: int = WORST) -> list[Mapping[str, Level]]:
    """Return the entries that MLX reaches least in, forward first: `most` of each direction."""
    chosen: list[Mapping[str, Level]] = []
    for direction in ("forward", "backward"):
        own = [entry for entry in columns if str(entry["tensor"]).startswith(direction)]
        chosen += sorted(own, key=lambda entry: _number(entry["mlx_torch_fp64"]))[:most]
    return chosen


def _number(level: Level) -> float:
    return level if isinstance(level, float) else -1e9 if level is None else 1e9


def column_rows(columns: Sequence[Mapping[str, Level]]) -> list[tuple[str, ...]]:
    """Return cells: the tensor and its three levels."""
    return [(str(entry["tensor"]), *(shown(entry[column]) for column in COLUMNS)) for entry in columns]


def column_heading() -> tuple[str, ...]:
    return ("tensor", *COLUMNS.values())


def shown(level: Level) -> str:
    """Return a level as text."""
    return f"{level:.1f} dB" if isinstance(level, float) else str(level or "–")


def columns_text(facts: Mapping[str, Any]) -> str:
    """Return the worst tensors of each direction in three columns, and what was computed with, for a terminal."""
    text = table(column_heading(), column_rows(worst_columns(facts["columns"])))
    return f"{text}\n{precision_line(facts)}"


def precision_line(facts: Mapping[str, Any]) -> str:
    """Return devices, precision of products and the norm convention as one line."""
    mlx, torch = facts["precision"]["mlx"], facts["precision"]["torch"]
    parts = [f"MLX on {mlx['device']}, TF32 {'on' if mlx['tf32'] else 'off'}"]
    parts.append(f"torch on {torch['device']}, matmul precision {torch['matmul_precision']}")
    parts.append(f"adapter norms {facts['adapter_norm']}" if facts["adapter_norm"] else "an adapter without norms")
    return "; ".join(parts)


def depth_series(facts: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return series name to dB by depth, the worst of the rows; layers alone only after a miss.

    Logits are what the head puts out, so that all series end at one place.
    """
    alone = facts.get("each_layer_alone", {})
    forward_alone = {row: levels for row, levels in alone.items() if row.startswith("forward")}
    series = zip(
        DEPTH_SERIES,
        (
            worst_of(facts["error_by_layer"]),
            worst_of(forward_alone),
            worst_of(facts["gradients_by_layer"]),
            dict(alone.get("backward", {})),
        ),
        strict=True,
    )
    named = {name: {"head" if p == "logits" else p: db for p, db in levels.items()} for name, levels in series}
    return {name: levels for name, levels in named.items() if levels}


def worst_of(found: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return place to the lowest dB of several series; None where all are exact."""
    places = dict.fromkeys(place for levels in found.values() for place in levels)
    merged = {place: [levels.get(place) for levels in found.values()] for place in places}
    return {place: min((db for db in each if db is not None), default=None) for place, each in merged.items()}


def depth_text(facts: Mapping[str, Any]) -> str:
    """Return agreement by depth as a table: one line per place, one column per series."""
    series = depth_series(facts)
    places = sorted({place for levels in series.values() for place in levels}, key=_depth)
    rows = [(p, *(shown(levels[p] or "exact") if p in levels else "" for levels in series.values())) for p in places]
    return table(("place", *series), rows)


def _depth(place: str) -> tuple[int, str]:
    if place.startswith("layer "):
        return int(place.split()[1]), ""
    return (-1, place) if place == "embeddings" else (1 << 30, place)


def draw_depth(report: Mapping[str, Any], path: Path) -> bool:
    """Draw agreement by depth of `a0.json`; return whether there was anything to draw."""
    results = report["results"]
    budgets = {
        direction: max((r["budget"] or 0.0 for r in results if r["tensor"].startswith(direction)), default=0.0)
        for direction in ("forward", "backward")
    }
    return plot_error_by_layer(depth_series(report["facts"]), {k: v for k, v in budgets.items() if v}, path)
