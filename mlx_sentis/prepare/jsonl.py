"""JSON-lines files as users have them: a byte-order mark, any line ends, blank lines, an array under the wrong name.

Nothing is dropped in silence: every line is an object, a counted blank, or a fault with its number and reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from weights_bridge.errors import StageError

BOM = b"\xef\xbb\xbf"
DEEPEST = 64  # levels; schemas and arguments of real tools stay below ten
TOO_DEEP = f"not usable JSON: nested deeper than {DEEPEST} levels"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
ARRAY_HINT = (
    'write one row per line: python -c "import json, sys; [print(json.dumps(r)) for r in json.load(open(sys.argv[1], '
    "encoding='utf-8-sig'))]\" {name} > rows.jsonl"
)


@dataclass
class Lines:
    """What stands in a JSON-lines file.

    Attributes:
        objects: (line number from 1, object) in file order.
        faults: (line number, reason).
        blank: how many lines hold nothing but spaces.
    """

    objects: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    blank: int = 0


def read_lines(path: Path) -> Lines:
    """Read a JSON-lines file; faulty lines are collected, not raised.

    Args:
        path: UTF-8 with or without a byte-order mark; lines end in LF, CRLF or CR.

    Raises:
        StageError: the file cannot be read, is UTF-16, holds no row at all, or is one JSON value over several lines.
    """
    lines = Lines()
    try:
        with path.open("rb") as file:
            if file.read(2) in UTF16_MARKS:
                raise StageError(f"{path}: UTF-16 text, wanted UTF-8", hint="save it again as UTF-8")
            file.seek(0)
            for number, raw in enumerate(_pieces(file), 1):
                _take(lines, number, raw)
    except OSError as error:
        why = error.strerror or str(error)
        raise StageError(f"{path}: cannot be read: {why}", hint="give a JSON-lines file that exists") from None
    if lines.faults:
        _explain_whole_document(path, lines.faults[0][0])
    if not lines.objects and not lines.faults:
        raise StageError(f"{path}: no rows, the file is empty", hint="one JSON object per line; see the README's forms")
    return lines


def _pieces(file: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends. A raw CR cannot stand inside a JSON text, so splitting at it is safe."""
    first = True
    for raw in file:
        if first:
            raw, first = raw.removeprefix(BOM), False
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        yield from raw.split(b"\r")


def _take(lines: Lines, number: int, raw: bytes) -> None:
    if not raw.strip():
        lines.blank += 1
        return
    try:
        lines.objects.append((number, parse_object(raw)))
    except ValueError as error:
        lines.faults.append((number, str(error)))


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of one line.

    Raises:
        ValueError: the reason, in words for a user.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start} of the line is 0x{raw[error.start]:02x})") from None
    value = loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"found {name_of(value)}, wanted an object {{…}}")
    return value


def loads(text: str) -> Any:
    """Parse strict JSON: no NaN, no half surrogates, no nesting deeper than the interpreter can follow.

    Raises:
        ValueError: the reason, in words for a user.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if text.count("{") + text.count("[") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(TOO_DEEP)
    if "\\ud" in text.lower() and _has_half_surrogate(value):
        raise ValueError("a text has half a surrogate pair (\\ud800–\\udfff), which is no character")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not usable JSON: {text} is too large a number")
    return value


def _depth(value: Any) -> int:
    """Return how deep arrays and objects nest; loops instead of recursing, since the value may be hostile."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _has_half_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def name_of(value: Any) -> str:
    """Return the JSON word for a value's type: `a text`, `null`, `an array`, …"""
    if value is None:
        return "null"
    names = {bool: "a truth value", str: "a text", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


def _explain_whole_document(path: Path, line: int) -> None:
    """Raise the explaining error when the file is one JSON value (an array, or one object over several lines)."""
    try:
        value = loads(path.read_bytes().removeprefix(BOM).decode("utf-8"))
    except ValueError:  # neither one document nor lines: the faults of the lines say it better
        return
    if not isinstance(value, list | dict):
        return
    what = f"a JSON array of {len(value)} rows" if isinstance(value, list) else "one JSON value over several lines"
    hint = ARRAY_HINT.format(name=path.name) if isinstance(value, list) else "put each object on a line of its own"
    raise StageError(f"{path}:{line}: this is {what}, wanted JSON lines (one object per line)", hint=hint)
