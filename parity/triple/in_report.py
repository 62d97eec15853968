"""What the report of a run says of edge B: one row per edge and origin, the worst of its fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT = ("edge", "sides", "sentis", "verdict", "fixture", "worst", "psnr_db", "reason", "budget_db")


def worst_rows(triple: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rows of `triple.json` in which Sentis has a part, the worst of each edge and origin; none without it.

    Args:
        triple: what `parity RUN --edge ab` wrote.
    """
    worst: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (triple or {"rows": ()})["rows"]:
        key = (row["edge"], row["sentis"])
        if row["edge"] != "A" and (key not in worst or _badness(row) < _badness(worst[key])):
            worst[key] = {name: row[name] for name in KEPT}
    return list(worst.values())


def _badness(row: Mapping[str, Any]) -> tuple[bool, float]:
    return row["verdict"] == "pass", float("inf") if row["psnr_db"] is None else row["psnr_db"]


def report_row(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return check, verdict and figure, which says whether Sentis' side is measured or predicted."""
    level = row["reason"] if row["psnr_db"] is None else f"worst {row['psnr_db']:.1f} dB, budget {row['budget_db']:g}"
    return f"edge {row['edge']}, {row['sides']}", row["verdict"], f"{row['sentis']}: {level} ({row['worst']})"
