"""A `.json` file: one array of rows, read element by element.

The text is held in memory (JSON has no line to stop at), the rows are not. An array that breaks off gives every row
before the break and one fault for it: behind it, nobody can tell where a row begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.jsonl import BOM, Item, decode, name_of, opened

SPACE = re.compile(r"[ \t\n\r]*")
LINE_END = re.compile(r"\r\n|\r|\n")
LOST = "; what stands behind it could not be read"


def is_array(path: Path) -> bool:
    """Tell whether the first character of a file opens an array.

    Raises:
        StageError: the file cannot be read.
    """
    with opened(path) as file:
        text = file.read(4096).removeprefix(BOM).lstrip()
        while not text and (piece := file.read(4096)):
            text = piece.lstrip()
    return text.startswith(b"[")


def elements(path: Path) -> Iterator[Item]:
    """Yield every element of the array with the line it begins in.

    Raises:
        StageError: the file cannot be read.
    """
    with opened(path):
        text = path.read_bytes().removeprefix(BOM).decode("utf-8", "surrogateescape")
    line, here = 1, 0
    begin = _behind_space(text, _behind_space(text, 0) + 1)
    if text.startswith("]", begin):
        yield from _rest(text, begin + 1, line)
        return
    while True:
        line, here = line + len(LINE_END.findall(text, here, begin)), begin
        try:
            value, end = decode(text, begin)
        except ValueError as error:
            yield line, str(error).partition(" (column")[0] + LOST
            return
        yield line, _item(value, text[begin:end])
        end = _behind_space(text, end)
        if not text.startswith(",", end):
            break
        begin = _behind_space(text, end + 1)
    if text.startswith("]", end):
        yield from _rest(text, end + 1, line)
    else:
        yield line, "not JSON: behind this row a comma or the closing ] is missing" + LOST


def _behind_space(text: str, place: int) -> int:
    match = SPACE.match(text, place)
    return match.end() if match else place


def _rest(text: str, place: int, line: int) -> Iterator[Item]:
    if text[place:].strip():
        yield line, "not JSON: more text stands behind the closing ]"


def _item(value: Any, text: str) -> dict[str, Any] | str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # a byte that surrogateescape kept
        return f"not UTF-8 (byte 0x{ord(text[error.start]) - 0xDC00:02x})"
    return value if isinstance(value, dict) else f"found {name_of(value)}, wanted an object {{…}}"
