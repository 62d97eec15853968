"""One warm-up, then counted runs."""

from __future__ import annotations

import time
from collections.abc import Callable
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


def timed_with_cores(
    step: Callable[[], Any], runs: int, turn: Callable[[], None] = lambda: None
) -> tuple[list[float], list[float]]:
    """Return the seconds and the core seconds of each counted run after one warm-up.

    Args:
        step: does the work and waits until it is done.
        runs: ≥ 1.
        turn: waits before each run, outside of what is timed.
    """
    seconds, core_seconds = [], []
    for _ in range(runs + 1):
        turn()
        began, core_began = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - began)
        core_seconds.append(time.process_time() - core_began)
    return seconds[1:], core_seconds[1:]
