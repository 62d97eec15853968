"""Contenders that take turns: each in a process of its own, one step of each, again and again.

A slow minute of a shared machine then falls on all of them alike, so that ratios hold. A contender waits before each
step until the parent lets it go on; the parent waits until it has come back for the next step or has ended.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

POLL = 0.01  # seconds


class Turn:
    """The contender's side.

    Args:
        folder: of its own, shared with the parent; None waits for nobody.
        release: gives memory back that the last step left behind, so that the next contender has it.
    """

    def __init__(self, folder: str | None, release: Callable[[], Any] = lambda: None) -> None:
        self._folder, self._release, self._count = Path(folder) if folder else None, release, 0

    def __call__(self) -> None:
        """Return when it is this contender's turn."""
        if not self._folder:
            return
        self._release()
        (self._folder / f"ready-{self._count}").touch()
        while not (self._folder / f"go-{self._count}").exists():
            time.sleep(POLL)
        self._count += 1


def give_back() -> None:
    """Collect garbage and hand free memory back to the system, where the C library can (glibc's malloc_trim)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def in_turn(
    contenders: Mapping[str, Callable[[str], dict[str, Any]]], steps: int, work: Path, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Run contenders side by side, step by step in turn, and return what each one returned.

    Args:
        contenders: label to what runs it, given the folder for its `Turn`.
        steps: of each, the warm-up included.
        work: an empty folder.
        say: is told what runs.
    """
    folders = {label: work / str(number) for number, label in enumerate(contenders)}
    with ThreadPoolExecutor(len(contenders)) as pool:
        running: dict[str, Future[dict[str, Any]]] = {}
        for label, run in contenders.items():
            folders[label].mkdir()
            running[label] = pool.submit(run, str(folders[label]))
            _wait(folders[label] / "ready-0", running[label])  # loaded, one after the other
        for step in range(steps):
            for label, folder in folders.items():
                if running[label].done():
                    continue
                say(f"{label}, {f'step {step} of {steps - 1}' if step else 'warm-up'}")
                (folder / f"go-{step}").touch()
                _wait(folder / f"ready-{step + 1}", running[label])  # the last step: until it has ended
        return {label: future.result() for label, future in running.items()}


def _wait(mark: Path, running: Future[Any]) -> None:
    while not mark.exists() and not running.done():
        time.sleep(POLL)
