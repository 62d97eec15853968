"""JSON-lines files as users have them: a byte-order mark, any line ends, blank lines, an array under the wrong name.

Nothing is dropped in silence: every line is an object, a counted blank, or a fault with its number and reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

from weights_bridge.errors import StageError

BOM = b"\xef\xbb\xbf"
DEEPEST = 64  # levels; schemas and arguments of real tools stay below ten
TOO_DEEP = f"not usable JSON: nested deeper than {DEEPEST} levels"
JSON_SPACE = " \t\n\r"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}
LONGEST_NUMBER = 300  # digits; beyond a double's range, and far below what the interpreter refuses
Item = tuple[int, dict[str, Any] | str | None]  # number from 1; an object, why there is none, or None for a blank line
ARRAY_HINT = (
    'write one row per line: python -c "import json, sys; [print(json.dumps(r)) for r in json.load(open(sys.argv[1], '
    "encoding='utf-8-sig'))]\" {name} > rows.jsonl; or name it .json, or say --format json"
)

SPREAD_HINT = (
    "write one object per line: jq -c . {name} > rows.jsonl; or put the objects into one array, with commas between "
    "them, in a .json file"
)


def lines_of(path: Path) -> Iterator[Item]:
    """Yield what stands in each line of a JSON-lines file, one line in memory at a time.

    Args:
        path: UTF-8 with or without a byte-order mark; lines end in LF, CRLF or CR.

    Raises:
        StageError: the file cannot be read.
    """
    with opened(path) as file:
        for number, raw in enumerate(pieces(file), 1):
            yield number, _item(raw)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file of text for reading, in bytes.

    Raises:
        StageError: it cannot be read, is UTF-16, or is compressed.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(8)
            if begin.startswith(UTF16_MARKS):
                raise StageError(f"{path}: UTF-16 text, wanted UTF-8", hint="save it again as UTF-8")
            if packed := next((name for mark, name in COMPRESSED.items() if begin.startswith(mark)), None):
                raise StageError(f"{path}: compressed ({packed}), wanted text in UTF-8", hint="unpack it first")
            file.seek(0)
            yield file
    except OSError as error:
        why = error.strerror or str(error)
        raise StageError(f"{path}: cannot be read: {why}", hint="give a data file that exists") from None


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends. A raw CR cannot stand inside a JSON text, so splitting at it is safe."""
    first = True
    for raw in file:
        if first:
            raw, first = raw.removeprefix(BOM), False
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        yield from raw.split(b"\r")


def _item(raw: bytes) -> dict[str, Any] | str | None:
    if not raw.strip():
        return None
    try:
        return parse_object(raw)
    except ValueError as error:
        return str(error)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of one line.

    Raises:
        ValueError: the reason, in words for a user.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(error, raw)) from None
    value = loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"found {name_of(value)}, wanted an object {{…}}")
    return value


def not_utf8(error: UnicodeDecodeError, raw: bytes) -> str:
    """Return the reason why a line is no text."""
    return f"not UTF-8 (byte {error.start} of the line is 0x{raw[error.start]:02x})"


def loads(text: str) -> Any:
    """Parse strict JSON: no NaN, no key twice, no half surrogates, no nesting deeper than the interpreter can follow.

    Raises:
        ValueError: the reason, in words for a user.
    """
    start = len(text) - len(text.lstrip(JSON_SPACE))
    value, end = decode(text, start)
    if rest := text[end:].strip(JSON_SPACE):
        raise ValueError(f"not JSON: Extra data (column {text.index(rest, end) + 1})")
    return value


def decode(text: str, start: int) -> tuple[Any, int]:
    """Parse the one strict JSON value that begins at a place, and say where it ends; more text may follow.

    Raises:
        ValueError: the reason, in words for a user.
    """
    try:
        value, end = DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    piece = text[start:end] if start or end < len(text) else text
    if piece.count("{") + piece.count("[") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(TOO_DEEP)
    if "\\ud" in piece.lower() and _has_half_surrogate(value):
        raise ValueError("a text has half a surrogate pair (\\ud800–\\udfff), which is no character")
    return value, end


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not usable JSON: {text} is too large a number")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"not usable JSON: a number of {len(text)} digits")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise ValueError(f"not usable JSON: the key {twice!r} stands twice in one object")
    return found


DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_object
)


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


def require_lines(path: Path) -> None:
    """Require that a file is JSON lines and not one JSON value: an array, or one object over several lines.

    Raises:
        StageError: what it is instead, with a way to convert it; or it is empty.
    """
    first = next(((number, item) for number, item in lines_of(path) if item is not None), None)
    if first is None:
        raise StageError(f"{path}: no rows, the file is empty", hint="one JSON object per line; see the README's forms")
    number, item = first
    if isinstance(item, dict):
        return
    try:
        value = loads(path.read_bytes().removeprefix(BOM).decode("utf-8"))
    except (OSError, ValueError):
        _require_no_spread_objects(path, number)
        return
    if not isinstance(value, list | dict):
        return
    what = f"a JSON array of {len(value)} rows" if isinstance(value, list) else "one JSON value over several lines"
    hint = ARRAY_HINT.format(name=path.name) if isinstance(value, list) else _object_hint(value)
    raise StageError(f"{path}:{number}: this is {what}, wanted JSON lines (one object per line)", hint=hint)


def _require_no_spread_objects(path: Path, number: int) -> None:
    """Require that a file is not objects over several lines each; of anything else the lines' faults say more."""
    count, place = 0, 0
    try:
        text = path.read_bytes().removeprefix(BOM).decode("utf-8").strip(JSON_SPACE)
        while place < len(text):
            value, end = decode(text, place)
            if not isinstance(value, dict) or not {"\n", "\r"} & set(text[place:end]):
                return
            count, place = count + 1, end
            while place < len(text) and text[place] in JSON_SPACE:
                place += 1
    except (OSError, ValueError):
        return
    what = f"{count} JSON objects over several lines each, wanted JSON lines (one object per line)"
    raise StageError(f"{path}:{number}: this is {what}", hint=SPREAD_HINT.format(name=path.name))


def _object_hint(value: dict[str, Any]) -> str:
    inside = [key for key, items in value.items() if isinstance(items, list) and items and isinstance(items[0], dict)]
    if len(inside) == 1:
        return f"its {len(value[inside[0]])} rows stand under {inside[0]!r}: write that array alone into a .json file"
    return "put each object on a line of its own"
