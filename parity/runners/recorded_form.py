"""The form of `dump.json`: every field is checked before it is used, and all faults are told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from weights_bridge.sentis_dump import BACKENDS, DUMP_SCHEMA

DTYPES = ("float32", "int32")
MOST_ELEMENTS = 2**31 - 1  # a Sentis tensor ends there
SHOWN = 60
VERSION = re.compile(r"\d+(\.\d+){1,3}([-+.][0-9A-Za-z.+-]+)?")  # as packages of Unity are numbered


class DumpFault(Exception):  # noqa: N818 - it carries faults for a StageError, nobody else sees it
    """What is wrong with a dump's form.

    Args:
        faults: one line each, with the place in the document.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def checked_dump(document: Any, folder: Path) -> dict[str, Any]:
    """Return a document whose every field that we read is there and of its kind.

    Args:
        document: parsed JSON.
        folder: of the dump, which no file may lie outside of.

    Raises:
        DumpFault: everything that is wrong.
    """
    if not isinstance(document, dict) or document.get("schema") != DUMP_SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise DumpFault([f"schema: found {_shown(found)}, wanted {DUMP_SCHEMA!r}"])
    form = _Form(folder.resolve())
    for key, kind in (("package", _line), ("version", _version), ("unity", _line), ("device", _text)):
        form.field(document, key, "", kind)
    form.field(document, "date", "", _day)
    form.field(document, "models", "", _list)
    if not form.faults:
        for at, model in enumerate(document["models"]):
            form.model(model, f"models[{at}]")
        if not document["models"]:
            form.faults.append("models: the list is empty")
    if form.faults:
        raise DumpFault(form.faults)
    return document


class _Form:
    """Collects faults.

    Args:
        folder: of the dump, resolved.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[str] = []

    def field(self, entry: dict[str, Any], key: str, at: str, kind: Callable[[Any], str]) -> bool:
        """Check one field and tell whether it can be used."""
        place = f"{at}.{key}" if at else key
        if key not in entry:
            self.faults.append(f"{place}: missing")
            return False
        if wanted := kind(entry[key]):
            self.faults.append(f"{place}: found {_shown(entry[key])}, wanted {wanted}")
            return False
        return True

    def object(self, value: Any, at: str) -> bool:
        if not isinstance(value, dict):
            self.faults.append(f"{at}: found {_shown(value)}, wanted an object")
            return False
        return True

    def model(self, model: Any, at: str) -> None:
        if not self.object(model, at):
            return
        self.field(model, "file", at, _text)
        self.field(model, "sha256", at, _hash)
        if self.field(model, "import", at, _object):
            self.field(model["import"], "ok", f"{at}.import", _truth)
            for key in ("warnings", "errors"):
                self.field(model["import"], key, f"{at}.import", _texts)
        if not self.field(model, "runs", at, _list):
            return
        seen: dict[tuple[Any, Any], str] = {}
        for number, run in enumerate(model["runs"]):
            place = f"{at}.runs[{number}]"
            self.run(run, place)
            if isinstance(run, dict):
                key = (repr(run.get("backend")), repr(run.get("fixture")))
                if (first := seen.setdefault(key, place)) != place:
                    self.faults.append(f"{place}: backend and fixture are those of {first}")

    def run(self, run: Any, at: str) -> None:
        if not self.object(run, at):
            return
        self.field(run, "backend", at, _backend)
        self.field(run, "fixture", at, _text)
        self.field(run, "fixture_sha256", at, _hash)
        self.field(run, "milliseconds", at, _times)
        if "error" in run:
            self.field(run, "error", at, _string)
        if not self.field(run, "outputs", at, _list):
            return
        names: set[str] = set()
        for number, output in enumerate(run["outputs"]):
            self.output(output, f"{at}.outputs[{number}]", names)

    def output(self, output: Any, at: str, names: set[str]) -> None:
        if not self.object(output, at):
            return
        if self.field(output, "name", at, _text):
            if output["name"] in names:
                self.faults.append(f"{at}.name: {_shown(output['name'])} is there twice")
            names.add(output["name"])
        self.field(output, "dtype", at, _dtype)
        sizes = self.field(output, "shape", at, _sizes)
        if not self.field(output, "file", at, _string_or_null) or not sizes:
            return
        elements = math.prod(output["shape"])
        if output["file"] is None and elements:
            self.faults.append(f"{at}.file: found null, wanted a path: the tensor has {elements} elements")
        elif output["file"] is not None and (why := self.outside(output["file"])):
            self.faults.append(f"{at}.file: found {_shown(output['file'])}, wanted a path inside the folder: {why}")

    def outside(self, text: str) -> str:
        """Return why a path must not be read; empty where it may."""
        windows = PureWindowsPath(text)
        if not text.strip() or "\0" in text:
            return "no file's name"
        if PurePosixPath(text).is_absolute() or windows.drive or windows.root:
            return "absolute"
        if ".." in windows.parts:
            return "`..` leads out of it"
        try:
            inside = (self.folder / text).resolve().is_relative_to(self.folder)
        except (OSError, RuntimeError) as error:  # a name that is too long, links that go round
            return str(error)
        return "" if inside else "a link leads out of it"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _text(value: Any) -> str:
    return "" if not _string(value) and value.strip() else "a text"


def _line(value: Any) -> str:
    """A text that stands in a cell of the table."""
    return _text(value) or ("" if value.isprintable() else "a text of one line")


def _version(value: Any) -> str:
    sound = isinstance(value, str) and VERSION.fullmatch(value)
    return "" if sound else "a package version such as 2.6.0"


def _day(value: Any) -> str:
    try:
        day = date.fromisoformat(value)
    except (TypeError, ValueError):
        return "a day as YYYY-MM-DD"
    return "" if day.isoformat() == value else "a day as YYYY-MM-DD"


def _string(value: Any) -> str:
    # half a surrogate pair is JSON, and no text that could be printed or be a file's name
    return "" if _encodes(value) else "a text"


def _encodes(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _string_or_null(value: Any) -> str:
    return "" if value is None or not _string(value) else "a path or null"


def _texts(value: Any) -> str:
    return "" if isinstance(value, list) and not any(map(_string, value)) else "a list of texts"


def _list(value: Any) -> str:
    return "" if isinstance(value, list) else "a list"


def _object(value: Any) -> str:
    return "" if isinstance(value, dict) else "an object"


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def _hash(value: Any) -> str:
    digits = isinstance(value, str) and len(value) == 64 and all(letter in "0123456789abcdefABCDEF" for letter in value)
    return "" if digits else "64 hexadecimal digits"


def _backend(value: Any) -> str:
    return "" if value in BACKENDS else " or ".join(BACKENDS)


def _dtype(value: Any) -> str:
    return "" if value in DTYPES else " or ".join(DTYPES)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sizes(value: Any) -> str:
    sound = isinstance(value, list) and all(_whole(size) and size >= 0 for size in value)
    return "" if sound and math.prod(value) <= MOST_ELEMENTS else "sizes of at most 2^31 − 1 elements"


def _times(value: Any) -> str:
    def sound(one: Any) -> bool:
        return (_whole(one) or isinstance(one, float)) and 0 <= one < math.inf

    return "" if isinstance(value, list) and all(map(sound, value)) else "a list of milliseconds"
