"""Signals during training: SIGINT and SIGTERM save and end it, SIGUSR1 saves and lets it go on.

A signal only leaves a note; the loop reads it between two updates, where state can be saved. Before the first update
there is nothing to save: SIGINT and SIGTERM end the process as they end any, SIGUSR1 does nothing.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from weights_bridge.errors import StageError


class InterruptedTrainingError(StageError):
    """Training was told to stop; what it had is saved.

    The exit code is 128 + the signal's number, 130 for SIGINT and 143 for SIGTERM, as shells and job runners expect.

    Args:
        name: the signal's name.
        message: what is saved.
        hint: how to go on.
    """

    def __init__(self, name: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal.Signals[name].value


class Interrupts:
    """Listens for signals while its block runs; a second SIGINT or SIGTERM ends the process at once.

    Attributes:
        stop: the name of the signal that asked to end, empty when none did.
    """

    def __init__(self) -> None:
        self.stop = ""
        self._save = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask_to_stop)
            self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._ask_to_save)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def save_wanted(self) -> bool:
        """Tell whether SIGUSR1 came since the last call."""
        wanted, self._save = self._save, False
        return wanted

    def _ask_to_stop(self, number: int, frame: object) -> None:
        self.stop = signal.Signals(number).name
        for asked in (signal.SIGINT, signal.SIGTERM):
            signal.signal(asked, self._before[asked])

    def _ask_to_save(self, number: int, frame: object) -> None:
        self._save = True
