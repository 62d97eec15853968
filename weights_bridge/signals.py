"""SIGUSR1 asks a training to save. Everywhere else it would end the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def saving_later() -> Iterator[None]:
    """Let SIGUSR1 do nothing while the block runs; the updates of a training in it listen for themselves.

    Processes that the block starts are born so, before they can say anything about signals.
    """
    if threading.current_thread() is not threading.main_thread():  # Python lets no other thread set handlers
        yield
        return
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
