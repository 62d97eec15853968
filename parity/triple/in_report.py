"""What the report of a run says of edge B: one row per edge and origin, the worst of its fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder

STAGE, LATER = "edge-b", "parity-b"  # the manifest's keys of a run's own stage, and of `parity RUN --edge b|ab`
KEPT = ("edge", "sides", "sentis", "verdict", "fixture", "worst", "psnr_db", "reason", "budget_db")


def current_triple(run: RunFolder) -> dict[str, Any] | None:
    """Return `triple.json`, None where there is none or where it is of another graph than the run has now."""
    path, stages = run.path("parity", "triple.json"), run.manifest()["stages"]
    wrote = [entry for name, entry in stages.items() if name in (STAGE, LATER)]
    if not path.is_file() or not wrote:
        return None
    now = run.recorded_hashes()
    same = all(now.get(name, digest) == digest for name, digest in wrote[-1]["inputs"].items())  # the last one wrote it
    return read_json(path) if same else None


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
