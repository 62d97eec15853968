"""Case files on disk: written beside their records, with the two lists over all of them, and checked line by line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.cases.pages import case_page, eval_log, verified_exports
from parity.cases.records import file_name, read_records
from weights_bridge.errors import StageError
from weights_bridge.files import write_json, write_text

MADE_BY = "ade by `mlx-sentis case`"  # Made, or made
WRITE_AGAIN = "`mlx-sentis case RUN --out DIR` writes them again"
SHOWN = 60  # characters of a line around the place where it differs
LISTS: dict[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "verified_exports.md": verified_exports,
    "eval_log.md": eval_log,
}


def write_case(records: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a model's case file and records into a folder of case files, and renew the lists over all of them.

    Args:
        records: what `records.collect` returned.
        folder: one of case files, or a new one.

    Returns:
        The files that were written.

    Raises:
        StageError: a page of that name is there which this command has not made, or records there cannot be read.
    """
    page, kept = folder / f"{records['model']}.md", folder / "records" / f"{records['model']}.json"
    for file in (page, *(folder / name for name in LISTS)):
        if file.is_file() and MADE_BY not in file.read_text(encoding="utf-8", errors="replace"):
            raise StageError(f"{file}: there, and not made by this command", hint="move it, or give another --out")
    others = [shown_records(path) for path in (folder / "records").glob("*.json") if path.name != kept.name]
    everything = sorted([*others, records], key=lambda one: one["model"])
    write_json(kept, records)
    write_text(page, case_page(records))
    for name, text_of in LISTS.items():
        write_text(folder / name, text_of(everything))
    return [page, kept, *(folder / name for name in LISTS)]


def all_records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a folder of case files, by model."""
    return [shown_records(path) for path in sorted((folder / "records").glob("*.json"))]


def shown_records(path: Path) -> dict[str, Any]:
    """Read records of which every page can be written; their hash is right, and they may be of another version.

    Raises:
        StageError: they cannot be read, were changed, or have another form.
    """
    found = read_records(path)
    try:
        named = file_name(found["model"]) == found["model"]
        for text_of in (case_page, lambda one: verified_exports([one]), lambda one: eval_log([one])):
            text_of(found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StageError(f"{path}: not in the form that this version reads: {what}", hint=WRITE_AGAIN) from None
    if not named:  # it becomes the page's name
        raise StageError(f"{path}: model: found {found['model']!r}, which is no file's name", hint=WRITE_AGAIN)
    return found


def folder_faults(folder: Path) -> list[str]:
    """Return what a folder's pages say otherwise than its records, one line each; pages and records go together.

    Raises:
        StageError: no records in it.
    """
    files = sorted((folder / "records").glob("*.json"))
    if not files:
        raise StageError(f"{folder}: no records/*.json in it", hint="`mlx-sentis case RUN --out DIR` makes the folder")
    try:
        found = all_records(folder)
    except StageError as fault:  # nothing can be held against records that are none
        return [fault.message]
    wanted = {f"{records['model']}.md": case_page(records) for records in found}
    wanted |= {name: text_of(found) for name, text_of in LISTS.items()}
    faults = [
        f"{path.name}: a page without records/{path.stem}.json"
        for path in sorted(folder.glob("*.md"))
        if path.name not in wanted
    ]
    for name, text in wanted.items():
        path = folder / name
        faults += [f"{name}: {fault}" for fault in file_faults(path, text)] if path.is_file() else [f"{name}: missing"]
    return faults


def file_faults(path: Path, wanted: str) -> list[str]:
    """Return where a page says something else than the records.

    Raises:
        StageError: the page cannot be read.
    """
    try:
        found = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="`mlx-sentis case RUN --out DIR` writes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not readable as UTF-8: {error}", hint="write it again with --out") from None
    return list(text_faults(found, wanted))


def text_faults(found: str, wanted: str) -> Iterator[str]:
    """Yield each line of a page that the records do not say, with its number; nothing where both are equal."""
    ours, theirs = found.split("\n"), wanted.split("\n")
    for kind, begin, end, first, last in difflib.SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if kind == "equal":
            continue
        paired = min(end - begin, last - first)
        for at in range(paired):
            here, there = _around(ours[begin + at], theirs[first + at])
            yield f"line {begin + at + 1}: found {here!r}, the records say {there!r}"
        for at in range(begin + paired, end):
            yield f"line {at + 1}: found {_cut(ours[at])!r}, the records say nothing here"
        for at in range(first + paired, last):
            yield f"line {end + 1}: missing before it: {_cut(theirs[at])!r}"


def _around(found: str, wanted: str) -> tuple[str, str]:
    """Return both lines from a little before the place where they part."""
    same = next(
        (at for at, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
    )
    start = max(0, same - SHOWN // 2)
    begin = f"{wanted[: wanted.find(' |', 2)]} … " if start and wanted.startswith("| ") else ""  # which row it is
    return begin + _cut(found[start:]), begin + _cut(wanted[start:])


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
