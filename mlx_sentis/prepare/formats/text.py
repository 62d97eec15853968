"""Plain text: `{"text": …}`, one per row, or a text file.

Such a row has no question: the text is trained as it is, without the chat template.

A text file with empty lines between its texts has one row per paragraph, one without has one row per line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.formats.turns import said
from mlx_sentis.prepare.jsonl import Item, not_utf8, opened, pieces
from mlx_sentis.prepare.rows import Row, ToolSet

NO_TEXT = "found a NUL character, this is no text"


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with `text`.

    Raises:
        ValueError: it is no text, or empty.
    """
    return Row([said("assistant", value["text"], "text")], [], source)


def has_paragraphs(path: Path) -> bool:
    """Tell whether an empty line stands between two texts of a file.

    Raises:
        StageError: it cannot be read.
    """
    with opened(path) as file:
        begun = gap = False
        for raw in pieces(file):
            if raw.strip() and gap:
                return True
            begun = begun or bool(raw.strip())
            gap = begun and not raw.strip()
    return False


def lines(path: Path) -> Iterator[Item]:
    """Yield each line as `{"text"}`.

    Raises:
        StageError: it cannot be read.
    """
    with opened(path) as file:
        for number, raw in enumerate(pieces(file), 1):
            yield number, _text(raw) if raw.strip() else None


def paragraphs(path: Path) -> Iterator[Item]:
    """Yield each paragraph as `{"text"}`, with the number of its first line; lines inside it end in LF.

    Raises:
        StageError: it cannot be read.
    """
    begun, held = 0, []
    with opened(path) as file:
        for number, raw in enumerate(pieces(file), 1):
            if raw.strip():
                begun = begun or number
                held.append(raw)
            elif begun:
                yield begun, _text(b"\n".join(held))
                begun, held = 0, []
    if begun:
        yield begun, _text(b"\n".join(held))


def _text(raw: bytes) -> dict[str, Any] | str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return not_utf8(error, raw)
    return NO_TEXT if "\0" in text else {"text": text}
