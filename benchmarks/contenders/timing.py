"""One warm-up, then counted runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any


def timed(step: Callable[[], Any], runs: int) -> tuple[Any, list[float]]:
    """Return what the warm-up returned and the seconds of each counted run.

    Args:
        step: does the work and waits until it is done.
        runs: ≥ 1.
    """
    first = step()
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return first, seconds


def timed_with_cores(step: Callable[[], Any], runs: int) -> tuple[list[float], list[float]]:
    """Return the seconds and the core seconds of each counted run after one warm-up.

    Args:
        step: does the work and waits until it is done.
        runs: ≥ 1.
    """
    marks: list[float] = []

    def marked() -> None:
        step()
        marks.append(time.process_time())

    _, seconds = timed(marked, runs)
    return seconds, [after - before for before, after in pairwise(marks)]
