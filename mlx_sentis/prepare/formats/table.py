"""CSV and TSV: a header, then one record per row; a quoted cell may hold separators, quotes (doubled) and line ends.

A `.csv` file whose header has more semicolons or tabs than commas is separated by those (spreadsheets of many
countries write them). Records without any text are blank; one with more or fewer cells than the header is a fault.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.jsonl import Item, opened
from weights_bridge.errors import StageError, counted

SEPARATORS = (",", ";", "\t")
TAB_SUFFIXES = (".tsv", ".tab")
HEADER_HINT = "the first line names the columns, for example: instruction,input,output"


@dataclass(frozen=True)
class Table:
    """A table whose header has been read.

    Attributes:
        path: the file.
        separator: between two cells.
        columns: the header's names, without the spaces around them.
    """

    path: Path
    separator: str
    columns: tuple[str, ...]

    def records(self) -> Iterator[Item]:
        """Yield every record below the header as column to cell, with the line it begins in.

        Raises:
            StageError: the file cannot be read.
        """
        below = False
        for number, cells in _records(self.path, self.separator):
            if isinstance(cells, str):
                yield number, cells
            elif not any(cell.strip() for cell in cells):
                yield number, None
            elif below:
                yield number, self._item(cells)
            else:
                below = True

    def _item(self, cells: list[str]) -> dict[str, Any] | str:
        if reason := _no_text(cells):
            return reason
        if len(cells) != len(self.columns):
            return f"found {counted(len(cells), 'cell')}, wanted {len(self.columns)}: {', '.join(self.columns)}"
        return dict(zip(self.columns, cells, strict=True))


def open_table(path: Path, *, tabs: bool = False) -> Table:
    """Read a table's header.

    Args:
        path: UTF-8 with or without a byte-order mark; lines end in LF, CRLF or CR.
        tabs: separated by tabs, whatever the header looks like.

    Raises:
        StageError: it cannot be read, is empty, or its header is none.
    """
    found = [(one, _header(path, one)) for one in (("\t",) if tabs else SEPARATORS)]
    # a quoted header is at fault when it is read with another table's separator
    separator, header = max(found, key=lambda one: len(one[1]) if isinstance(one[1], list) and len(one[1]) > 1 else 0)
    if isinstance(header, tuple):
        raise StageError(f"{path}:{header[0]}: {header[1]}", hint=HEADER_HINT)
    if tabs and len(header) == 1 and (other := next((one for one in SEPARATORS[:2] if one in header[0]), None)):
        hint = "name it .csv, or say --format csv"
        raise StageError(f"{path}:1: no tab in the header, it is separated by {other!r}", hint=hint)
    columns = [cell.strip() or f"column {number}" for number, cell in enumerate(header, 1)]
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise StageError(f"{path}:1: the header names {', '.join(twice)} twice", hint=HEADER_HINT)
    return Table(path, separator, tuple(columns))


def _header(path: Path, separator: str) -> list[str] | tuple[int, str]:
    """Return the header's cells, or the line and the reason why it has none."""
    for number, cells in _records(path, separator):
        reason = cells if isinstance(cells, str) else _no_text(cells)
        if reason:
            return number, reason
        if any(cell.strip() for cell in cells):
            return list(cells)
    raise StageError(f"{path}: no rows, the file is empty", hint=HEADER_HINT)


def _records(path: Path, separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the cells of every record with its first line, or why it has none."""
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=separator, strict=True)
        while True:
            number = reader.line_num + 1
            try:
                yield number, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason, is_last = _reason(str(error), number, reader.line_num)
                yield number, reason
                if is_last:
                    return


def _reason(error: str, first: int, last: int) -> tuple[str, bool]:
    """Return what is wrong with a record, and whether nothing behind it can be told apart."""
    if "field limit" in error:
        return "a cell is longer than 131072 characters (a quote never closed?); nothing behind it was read", True
    if "unexpected end" in error:
        swallowed = "the rest of the line is" if first == last else f"lines {first} to {last} are"
        return f"a quote is never closed, so {swallowed} one cell", True
    return f"a quote inside a quoted cell is not doubled ({error})", False


def _no_text(cells: list[str]) -> str:
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError:  # bytes that surrogateescape kept
        return "not UTF-8; save the table again as CSV UTF-8"
    return ""
