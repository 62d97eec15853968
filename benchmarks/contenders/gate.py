"""One gate of a finished run, measured again without writing to it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from parity.a0 import measure_a0
from parity.verify import edge_a_of_run, settings_of
from weights_bridge.run_folder import RunFolder


def measure(run: str, gate: str) -> dict[str, Any]:
    """Return seconds, checks and the worst level.

    Args:
        run: the run folder.
        gate: `a0`, `base` or `tuned` (edge A of that graph).
    """
    folder = RunFolder.existing(Path(run))
    began = time.perf_counter()
    report = measure_a0(folder, settings_of(folder).parity) if gate == "a0" else edge_a_of_run(folder, gate)
    seconds = time.perf_counter() - began
    passed = sum(result.passed for result in report.results)
    figures = {"seconds": round(seconds, 2), "passed": passed, "checks": len(report.results)}
    return figures | {"worst_db": report.worst_db() and round(report.worst_db() or 0.0, 1)}
