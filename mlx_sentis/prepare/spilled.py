"""Records of any length on disk, their places in memory: 8 bytes each, however long they are."""

from __future__ import annotations

import os
import tempfile
from array import array
from pathlib import Path
from types import TracebackType

from weights_bridge.files import CannotWriteError

BUFFER_BYTES = 1 << 20


class Spilled:
    """Records appended once and read back in any order.

    The file has no name, so a killed process leaves nothing behind.

    Args:
        folder: where the file lies while it is used; the folder must exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = array("Q", [0])
        self._unwritten = bytearray()
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115, closed by __exit__
        except OSError as error:
            raise CannotWriteError(folder, error) from error

    def __enter__(self) -> Spilled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def bytes_in_memory(self) -> int:
        return self._ends.itemsize * len(self._ends)

    def append(self, record: bytes) -> None:
        """Add a record.

        Raises:
            CannotWriteError: the disk is full.
        """
        self._unwritten += record
        self._ends.append(self._ends[-1] + len(record))
        if len(self._unwritten) >= BUFFER_BYTES:
            self._flush()

    def __getitem__(self, number: int) -> bytes:
        self._flush()
        start, stop = self._ends[number], self._ends[number + 1]
        return os.pread(self._file.fileno(), stop - start, start)

    def _flush(self) -> None:
        if not self._unwritten:
            return
        data, done = bytes(self._unwritten), 0
        try:
            while done < len(data):
                done += self._file.write(data[done:]) or 0
        except OSError as error:
            raise CannotWriteError(self._folder, error) from error
        self._unwritten.clear()
