"""Arrays from an npz file that somebody else wrote: whole, of numbers, in this machine's byte order."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once

NUMBERS = "biuf"  # kinds of numpy: bool, whole numbers, floats
# What numpy and zipfile throw at files that are damaged, encrypted, of one array alone (.npy), or claim more than
# the machine has; they share no base class.
UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, AttributeError, KeyError, OverflowError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


def read_npz(path: Path, hint: str = "make or copy it again") -> dict[str, Array]:
    """Return all arrays of an npz file by name, in the machine's byte order.

    Args:
        path: the file; nothing in it is run.
        hint: how to get another one.

    Raises:
        StageError: no such file, none that numpy reads whole, or arrays that hold no numbers, all of them named.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise StageError(f"{path}: not a whole npz file: it is a folder or a pipe", hint=hint)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: np.asarray(archive[key]) for key in archive.files}
    except FileNotFoundError:
        raise StageError(f"{path}: no such fixture", hint=hint) from None
    except UNREADABLE as error:
        raise StageError(f"{path}: not a whole npz file: {_said(error)}", hint=hint) from None
    odd = [f"{key}: found {array.dtype}" for key, array in arrays.items() if array.dtype.kind not in NUMBERS]
    if odd:
        told = "wanted numpy's own numbers: bool, int, uint or float of 16 to 64 bits"
        raise all_at_once(f"{path}: arrays that hold no numbers:", odd, hint=told)
    return {key: array.astype(array.dtype.newbyteorder("="), copy=False) for key, array in arrays.items()}


def _said(error: BaseException) -> str:
    if isinstance(error, TypeError):  # numpy gives a bare array, which is no context manager
        return "it holds one array without a name (.npy)"
    told = str(error).partition(" If you trust")[0]  # numpy's advice would run what the file holds
    return told or type(error).__name__
