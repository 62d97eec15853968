"""All stages in order, each in a child process of its own; stops at the first failure.

A process per stage keeps memory to what one stage needs, keeps torch's and MLX's libraries apart, and leaves every
finished stage in the run folder when one is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.children import environment
from parity.stages import STAGES
from weights_bridge.errors import StageError, UsedWronglyError, unknown_name
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Resolved
from weights_bridge.signals import saving_later

ASKED_TO_STOP = {130: "interrupted", 143: "terminated"}  # 128 + signal


class StageFailedError(StageError):
    """A stage ended with another exit code than 0; it has said why itself."""

    def __init__(self, stage: str, code: int, root: Path) -> None:
        again = f"`mlx-sentis run --out {root} --from {stage}` goes on"
        hint = f"mend it, then {again} (add --set for a changed setting)"
        why = ""
        if -code in (signal.SIGINT, signal.SIGTERM):  # a stage that has nothing to save leaves the signal to the system
            code = 128 - code
        if code in ASKED_TO_STOP:
            why, hint = f" ({ASKED_TO_STOP[code]})", again
        elif code < 0:  # the signal that ended the process; the system's own kill means memory ran out
            why = f" (ended by signal {-code}; often memory ran out)"
        if why and stage == "train":
            hint += "; training goes on from its newest checkpoint"
        super().__init__(f"stopped at stage {stage}{why}; the stages before it are kept in {root}", hint=hint)
        self.exit_code = code if code in (1, 2, 3, *ASKED_TO_STOP) else 1


def run_pipeline(
    root: Path,
    settings: Resolved | None,
    *,
    first: str = "recipe",
    progress: str = "stdout",
    trackers: Sequence[str] = (),
    quiet: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, float]:
    """Run the stages from `first` on.

    Args:
        root: the run folder.
        settings: written to `config.toml`; None keeps the run's own (going on with `first`).
        first: the stage to begin with.
        progress: where the training bar goes.
        trackers: who else hears of the training, see `mlx_sentis.training.reporters`.
        quiet: no story from the stages.
        say: hears of each stage.

    Returns:
        Seconds by stage.

    Raises:
        StageFailedError: a stage failed; its exit code is carried on.
    """
    if first not in STAGES:
        raise unknown_name("stage", first, STAGES, error=UsedWronglyError)
    run = RunFolder(root)
    if settings is not None:
        settings.write(run.path("config.toml"))
    elif not run.path("config.toml").is_file():
        raise StageError(f"{root}: no config.toml to go on with", hint="start without --from")
    names = list(STAGES)
    seconds: dict[str, float] = {}
    for name in names[names.index(first) :]:
        say(f"[{names.index(name) + 1}/{len(names)}] {name}: {(STAGES[name].__doc__ or '').strip()}")
        began = time.monotonic()
        code = run_stage(name, root, progress, quiet, trackers)
        seconds[name] = round(time.monotonic() - began, 1)
        if code != 0:
            raise StageFailedError(name, code, root)
        say(f"  {seconds[name]:.1f} s")
    return seconds


def run_stage(name: str, root: Path, progress: str, quiet: bool, trackers: Sequence[str] = ()) -> int:
    """Run one stage in a child and return its exit code; the child's words go straight to the terminal."""
    words: list[Any] = [sys.executable, "-m", "parity.stages", name, str(root), progress, "quiet" if quiet else "loud"]
    words += trackers
    with saving_later():  # the child is born so, and while it loads SIGUSR1 would end it
        child = subprocess.Popen(words, env=environment())
        with _passing_on_signals(child, name):
            try:
                return child.wait()
            except KeyboardInterrupt:  # the terminal has told the child as well
                code = child.wait()
                if code in ASKED_TO_STOP:
                    return code
                raise


@contextmanager
def _passing_on_signals(child: subprocess.Popen[Any], stage: str) -> Iterator[None]:
    """Hand SIGTERM to the stage, and SIGUSR1 (save and go on) to the one that knows it; else it is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    save = child.send_signal if stage == "train" else lambda number: None
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number)),
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, lambda number, frame: save(number)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
