"""Lines of a case file: a fact is looked up by the file and the place it stands at, and says so beside its value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.report import NOT_RUN

HEADING = ["| what | value | from |", "|---|---|---|"]
MISSING = object()
NOT_RECORDED = "not recorded"
Form = Callable[[Any], str]


class Facts:
    """The records of one model, as a page asks for them.

    Args:
        records: what `records.collect` returned.
    """

    def __init__(self, records: Mapping[str, Any]) -> None:
        self.model: str = records["model"]
        self.date: str = records["date"]
        self.sources: Mapping[str, Any] = records["sources"]
        self.hashes: Mapping[str, str] = records["hashes"]

    def at(self, file: str, place: str = "") -> Any:
        """Return what stands at `a.b.c` of a file; `MISSING` where the file or the place is not there."""
        found: Any = self.sources.get(file, MISSING)
        for key in filter(None, place.split(".")):
            found = found.get(key, MISSING) if isinstance(found, Mapping) else MISSING
        return found

    def known(self, file: str, place: str = "") -> Any:
        """Return what stands there, None where nothing does."""
        return None if (found := self.at(file, place)) is MISSING else found

    def has(self, file: str, place: str = "") -> bool:
        return self.at(file, place) is not MISSING

    def row(self, what: str, file: str, place: str, form: Form | None = None) -> str:
        """Return one line of a table; what no record holds is `not run`."""
        return line(what, self.value(file, place, form), origin(file, place))

    def value(self, file: str, place: str, form: Form | None = None) -> str:
        """Return a fact as text.

        `not run` where the stage that writes it was not, `not recorded` where it was and said nothing of it, `none`
        where the model has none.
        """
        found = self.at(file, place)
        if found is MISSING:
            stage = place.split(".", 2)[:2]
            ran = self.has(file, ".".join(stage) if file == "manifest.json" else "")
            return NOT_RECORDED if ran else NOT_RUN
        if found is None or found in ("", [], {}):
            return "none"
        return (form or plain)(found)


def line(*cells: str) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def origin(file: str, place: str = "") -> str:
    return f"`{file}: {place}`" if place else f"`{file}`"


def plain(value: Any) -> str:
    """Return a value as a reader would write it: numbers whole or to four digits, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == round(value) and abs(value) >= 1 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(plain, value))
    return str(value)


def coded(value: Any) -> str:
    """Return a text, or each of several, as code; quotes and spaces stay visible."""
    values = value if isinstance(value, list) else [value]
    return ", ".join(f"`{one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}`" for one in values)


def short_hash(value: str) -> str:
    return f"`{value[:16]}…`"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.1f} MB"


def seconds(value: float) -> str:
    return f"{value:,.1f} s"


def gib(value: float) -> str:
    return f"{value:.2f} GiB"
