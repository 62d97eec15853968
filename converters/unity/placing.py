"""Large files of a kit: placed whole or not at all, left alone where they are there already."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weights_bridge.errors import StageError
from weights_bridge.files import CannotWriteError, sha256_of, written_whole

PIECE_BYTES = 1 << 24


def place_file(source: Path, target: Path, *, link: bool = False) -> bool:
    """Put a copy of a file in its place, or a hard link to it.

    A file with the same bytes is left alone: Unity would import it again, which for a model takes minutes.

    Args:
        source: what is copied.
        target: where to.
        link: no copy, a second name of the same file: nothing is written twice, and a change of one is one of both.

    Returns:
        Whether anything was written.

    Raises:
        StageError: the disk is full, the folder cannot be written, or no link can lead there.
    """
    wanted = sha256_of(source)
    if target.is_file() and sha256_of(target) == wanted:
        return False
    with written_whole(target) as beside:
        if link:
            beside.unlink()
            _link(source, beside, target)
        else:
            with source.open("rb") as held, beside.open("wb") as file:
                shutil.copyfileobj(held, file, PIECE_BYTES)
        if (found := sha256_of(beside)) != wanted:
            raise StageError(
                f"{target}: the copy's sha256 is {found[:12]}…, that of {source} {wanted[:12]}…",
                hint="the file was changed meanwhile, or the disk is failing: write the kit again",
            )
    return True


def _link(source: Path, beside: Path, target: Path) -> None:
    try:
        os.link(source, beside)
    except OSError as error:
        if error.errno == errno.EXDEV:
            hint = "write it without --link, or choose an --out on the run's disk"
            raise StageError(f"{target}: no link can lead to {source}: another disk", hint=hint) from None
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder while a kit is written into it; it is made where it is missing.

    Raises:
        StageError: another process is writing a kit there, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        hint = "wait until it has ended, or choose another --out"
        raise StageError(f"{folder}: another process is writing a kit there", hint=hint) from None
    finally:
        os.close(handle)
