"""One writer at a time for a folder: the lock is the system's, leaves no file and dies with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weights_bridge.errors import StageError
from weights_bridge.files import CannotWriteError

TRIES, PAUSE = 10, 0.02  # seconds
_held: set[Path] = set()


@contextmanager
def one_at_a_time(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder while the block runs; in the process that holds it already, do nothing.

    A file system that knows no locks (some network shares) is taken as it is.

    Args:
        folder: made when it is not there; it goes again when nothing was written into it.
        what: who else may hold it, for example `another training`.

    Raises:
        StageError: another process holds it, or it cannot be made.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    place = folder.resolve()
    if place in _held:
        yield
        return
    handle = os.open(place, os.O_RDONLY)
    if not _taken(handle):
        os.close(handle)
        hint = "wait for it, end it, or choose another folder with --out"
        raise StageError(f"{folder}: {what} is writing to this folder already", hint=hint)
    _held.add(place)
    try:
        yield
    finally:
        _held.discard(place)
        os.close(handle)
        with suppress(OSError):  # what was made for nothing goes again
            for empty in made:
                empty.rmdir()


def _taken(handle: int) -> bool:
    """Take the lock; who only looks whether it is held (`is_held`) has it for a moment, so it is tried again."""
    for _ in range(TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return True
        time.sleep(PAUSE)
    return False


def is_held(folder: Path) -> bool:
    """Tell whether a process holds a folder; where there are no locks, it may."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
