"""`bench startup`: how long the command line takes to say what it can do."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.asked import Asked
from benchmarks.contenders.timing import timed
from benchmarks.result import Bench, Budget, Table
from parity.children import environment
from weights_bridge.errors import StageError

RUNS = 7
BUDGET_SECONDS = 0.3
COLUMNS = {"command": "command", "median": "median s", "fastest": "fastest s", "slowest": "slowest s"}


def measure(asked: Asked, program: Sequence[str] | None = None) -> Bench:
    """Measure the wall time of `--help`.

    Args:
        asked: `runs`.
        program: the command in words; None finds the installed one.

    Raises:
        StageError: the command does not end well.
    """
    runs = asked.runs or RUNS
    words = [*(program or installed()), "--help"]
    asked.say(f"startup: median of {runs}")

    def once() -> None:
        done = subprocess.run(words, capture_output=True, text=True, env=environment())
        if done.returncode != 0:
            raise StageError(f"{' '.join(words)}: exit {done.returncode}", hint=done.stderr.strip()[-300:])

    _, seconds = timed(once, runs)
    median = round(statistics.median(seconds), 4)
    row = {"command": "mlx-sentis --help", "median": median, "fastest": min(seconds), "slowest": max(seconds)}
    bench = Bench("startup", f"wall time of a new process, median of {runs}")
    bench.tables["commands"] = Table(COLUMNS, [row])
    bench.budgets.append(Budget("mlx-sentis --help", median, BUDGET_SECONDS, "s"))
    return bench


def installed() -> list[str]:
    """Return the installed command of this Python, or the module where it is not installed."""
    beside = Path(sys.executable).with_name("mlx-sentis")
    found = str(beside) if beside.is_file() else shutil.which("mlx-sentis")
    return [found] if found else [sys.executable, "-m", "cli"]
