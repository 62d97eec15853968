"""What a file is, whatever its rows are: JSON lines, one JSON array, a table, plain text, questions, a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.formats import FORMS, bfcl, form_of, json_array, table, text
from mlx_sentis.prepare.formats.huggingface import Split
from mlx_sentis.prepare.jsonl import Item, lines_of, require_lines
from weights_bridge.errors import StageError, UsedWronglyError, unknown_name

CONTAINERS = ("jsonl", "json", "csv", "tsv", "datasets")
NAMES = ("auto", *FORMS, *CONTAINERS)
TABLES = (".csv", ".tsv", ".tab")
TEXTS = (".txt", ".text", ".md")
JSONS = (".json", ".jsonl", ".ndjson")
SUFFIXES = (*JSONS, *TABLES, *TEXTS)


@dataclass(frozen=True)
class Part:
    """One file, or one split of a data set, as numbered objects.

    Attributes:
        place: the file.
        shown: as the user named it.
        kind: `jsonl`, `json`, `csv`, `tsv`, `text`, `bfcl` or `datasets`.
        items: reads it anew.
        columns: a table's columns, in order.
        note: what was decided about it, for people.
    """

    place: Path
    shown: str
    kind: str
    items: Callable[[], Iterator[Item]]
    columns: tuple[str, ...] = ()
    note: str = field(default="")


def check_format(name: str) -> None:
    """Require that a format's name is known.

    Raises:
        UsedWronglyError: it is not.
    """
    if name not in NAMES:
        raise unknown_name("format", name, NAMES, error=UsedWronglyError)


def part_of(file: Path, shown: str, name: str) -> Part:
    """Open one file.

    Args:
        file: where it is.
        shown: as the user named it.
        name: the format asked for, `auto` for none; a container's name decides, a form's name only helps.

    Raises:
        StageError: it cannot be read, is empty, or is not what its name says.
    """
    part = _opened(file, shown, name)
    if next((item for _, item in part.items() if item is not None), None) is None:
        below = " below the header" if part.columns else ", the file is empty"
        raise StageError(f"{file}: no rows{below}", hint="the README's section on data shows the forms of rows")
    return part


def _opened(file: Path, shown: str, name: str) -> Part:
    suffix = file.suffix.lower()
    if name in ("csv", "tsv") or (suffix in TABLES and name not in CONTAINERS):
        return _table(file, shown, is_tabs=name == "tsv" or (suffix in table.TAB_SUFFIXES and name != "csv"))
    if name == "text" and suffix not in JSONS:
        return _text(file, shown)
    if name == "auto" and suffix in TEXTS and not isinstance(_first(file), dict):  # rows are no text to train
        return _text(file, shown)
    is_array = json_array.is_array(file)
    if name == "json" or (is_array and name != "jsonl" and suffix not in (".jsonl", ".ndjson")):
        return _array(file, shown, is_array)
    require_lines(file)
    first = _first(file)
    _require_no_wrapped_rows(file, first)
    if name == "bfcl" or (name == "auto" and _are_questions(file, first)):
        questions = bfcl.open_questions(file)
        note = f"answers in {bfcl.ANSWERS}/" if questions.answers else f"no {bfcl.ANSWERS}/ beside it"
        return Part(file, shown, "bfcl", questions.items, note=note)
    if suffix not in JSONS and name == "auto" and isinstance(first, str):
        hint = "say what it is with --format csv, tsv, text or jsonl, or name it so"
        raise StageError(f"{file}: neither its name nor its first line says what it is ({first})", hint=hint)
    return Part(file, shown, "jsonl", partial(lines_of, file))


def _require_no_wrapped_rows(file: Path, first: dict[str, Any] | str | None) -> None:
    """Require that the rows are not an array under a key of the file's only line, as `{"data": [...]}` has them."""
    if not isinstance(first, dict) or form_of(first):
        return
    arrays = {key: value for key, value in first.items() if isinstance(value, list)}
    wrapped = [key for key, value in arrays.items() if value and isinstance(value[0], dict) and form_of(value[0])]
    if len(wrapped) == 1 and sum(item is not None for _, item in lines_of(file)) == 1:
        hint = "write that array alone into a .json file, or each of its rows on a line of its own"
        raise StageError(f"{file}: its {len(first[wrapped[0]])} rows stand under {wrapped[0]!r}", hint=hint)


def _first(file: Path) -> dict[str, Any] | str | None:
    """Return what the first line with anything in it holds, as JSON lines."""
    return next((item for _, item in lines_of(file) if item is not None), None)


def _array(file: Path, shown: str, is_array: bool) -> Part:
    if not is_array:
        raise StageError(f"{file}: no JSON array", hint="one object per line is format jsonl")
    return Part(file, shown, "json", partial(json_array.elements, file), note="a JSON array")


def _table(file: Path, shown: str, *, is_tabs: bool) -> Part:
    found = table.open_table(file, tabs=is_tabs)
    named = {";": "separated by semicolons", "\t": "separated by tabs"}
    kind = "tsv" if found.separator == "\t" else "csv"
    return Part(file, shown, kind, found.records, found.columns, named.get(found.separator, ""))


def _text(file: Path, shown: str) -> Part:
    if text.has_paragraphs(file):
        return Part(
            file, shown, "text", partial(text.paragraphs, file), note="one row per paragraph, between empty lines"
        )
    return Part(file, shown, "text", partial(text.lines, file), note="one row per line, no empty line between texts")


def _are_questions(file: Path, first: dict[str, Any] | str | None) -> bool:
    form = form_of(first) if isinstance(first, dict) else None
    return bfcl.answer_file(file).is_file() or (form is not None and form.name == "bfcl")


def part_of_dataset(split: Split, shown: str) -> Part:
    """Return one split of a Hugging Face data set.

    Raises:
        StageError: it has no rows, or its files are damaged.
    """
    if next(split.items(), None) is None:
        raise StageError(f"{shown}: no rows", hint="the README's section on data shows the forms of rows")
    return Part(split.place, shown, "datasets", split.items, note="a Hugging Face data set")
