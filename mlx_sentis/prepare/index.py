"""What the first reading keeps of every row: enough to cut splits, find repeats and near-duplicates, and name places.

Rows are read twice. The first time nothing but this index stays: about 560 bytes a row in memory, and on disk a line
to show the row by and the hashes of its shingles. The second time rows are rendered and written as they come.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.shingles import SIGNATURE, shingle_numbers, shingles, signature, words
from mlx_sentis.prepare.sources import SPLITS
from mlx_sentis.prepare.spilled import Spilled
from weights_bridge.compare import Array

SHOWN = 160  # characters of a text that messages may show


class RowIndex:
    """The index of all rows of a source, in reading order.

    Args:
        seed: of the cut; a row's `text` number is a hash of seed and text, so it also decides the order of the cut.
        scratch: an existing folder for what lies on disk.
        near: whether near-duplicates will be asked for; without, there are no signatures.
    """

    def __init__(self, seed: int, scratch: Path, *, near: bool = True) -> None:
        self.seed, self.near = seed, near
        self.kinds: list[str] = []
        self._kind_numbers: dict[str, int] = {}
        self._splits, self._kinds = array("B"), array("I")
        self._texts, self._prompts, self._answers = array("Q"), array("Q"), array("Q")
        self._signatures = array("I")
        self._tools: tuple[Any, bytes] = (None, b"")
        with ExitStack() as stack:
            self._shown = stack.enter_context(Spilled(scratch))
            self._shingles = stack.enter_context(Spilled(scratch))
            self._files = stack.pop_all()

    def __enter__(self) -> RowIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def __len__(self) -> int:
        return len(self._splits)

    def add(self, split: str, row: Row) -> int:
        """Add the next row and return the number of what it says.

        Raises:
            CannotWriteError: the disk is full.
        """
        text = row.user_text
        self._splits.append(SPLITS.index(split))
        self._kinds.append(self._number_of(row.kind))
        self._texts.append(text_number(self.seed, text))
        asked = row.messages if row.is_plain_text else row.messages[:-1]  # a text answers nothing but itself
        self._prompts.append(_number(repr(asked).encode() + self._tools_of(row)))
        self._answers.append(_number(repr(row.messages[-1]).encode()))
        self._shown.append(json.dumps([row.source, text[:SHOWN], answer_of(row)[:SHOWN]]).encode())
        if self.near:
            said = words(text)
            self._signatures.extend(signature(shingles(said)))
            self._shingles.append(shingle_numbers(said).tobytes())
        return self._texts[-1]

    def _number_of(self, kind: str) -> int:
        number = self._kind_numbers.setdefault(kind, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(kind)
        return number

    def _tools_of(self, row: Row) -> bytes:
        if self._tools[0] is not row.tools:  # command rows of one folder share their list
            self._tools = (row.tools, repr(row.tools).encode())
        return self._tools[1]

    @property
    def bytes_in_memory(self) -> int:
        """How much memory the index takes."""
        arrays = (self._splits, self._kinds, self._texts, self._prompts, self._answers, self._signatures)
        return sum(a.itemsize * len(a) for a in arrays) + sum(s.bytes_in_memory for s in (self._shown, self._shingles))

    # Copies, not views: an array that is being viewed could not take another row.
    @property
    def splits(self) -> Array:
        """The split each row was given in: [rows] uint8, a place in `SPLITS`."""
        return np.array(self._splits, np.uint8)

    @property
    def kind_numbers(self) -> Array:
        """The class of each row: [rows] uint32, a place in `kinds`."""
        return np.array(self._kinds, np.uint32)

    @property
    def texts(self) -> Array:
        """The number of what each row says: [rows] uint64; equal texts have equal numbers."""
        return np.array(self._texts, np.uint64)

    @property
    def prompts(self) -> Array:
        """The number of each row's prompt, tools included: [rows] uint64."""
        return np.array(self._prompts, np.uint64)

    @property
    def answers(self) -> Array:
        """The number of each row's answer: [rows] uint64."""
        return np.array(self._answers, np.uint64)

    @property
    def signatures(self) -> Array:
        """The MinHash signatures: [rows, SIGNATURE] uint32. A view: while it is in use no row can be added."""
        return np.frombuffer(self._signatures, np.uint32).reshape(-1, SIGNATURE)

    def shingles(self, row: int) -> frozenset[int]:
        """Return the hashed shingles of a row."""
        return frozenset(np.frombuffer(self._shingles[row], np.uint32).tolist())

    def words(self, row: int) -> Array:
        """Return the numbers of a row's words in order: [W] uint32."""
        numbers = np.frombuffer(self._shingles[row], np.uint32)
        return numbers[: (len(numbers) + 1) // 2]

    def shown(self, row: int) -> tuple[str, str, str]:
        """Return a row's source, the beginning of its text, and the beginning of its answer."""
        source, text, answer = json.loads(self._shown[row])
        return source, text, answer


def place_of(source: str) -> str:
    """Return `file:line` without the folders, as files of the run say it."""
    return source.replace("\\", "/").rpartition("/")[2]


def answer_of(row: Row) -> str:
    """Return a row's last turn as a line."""
    calls = [json.dumps(call.as_json(), ensure_ascii=False) for call in row.calls]
    return "\n".join(filter(None, [row.messages[-1]["content"].strip(), *calls]))


def text_number(seed: int, text: str) -> int:
    """Return 64 bits of the SHA-256 of seed and text."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{text}".encode()).digest()[:8], "big")


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
