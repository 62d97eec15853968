"""Where rows come from: a shipped set by name, a folder with one file per split, or a single file."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mlx_sentis.prepare.jsonl import BOM, lines_of, loads, name_of, require_lines
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from mlx_sentis.prepare.tools import normalised_tools
from weights_bridge.errors import StageError, all_at_once, counted

SPLITS = ("train", "valid", "calibration", "holdout")
ALIASES = {"validation": "valid", "test": "holdout"}  # what other trainers call them
FORM_HINT = "one object per line; `mlx-sentis prepare --help` and the README show the forms"
SAME_CAUSE = 4  # from so many on, rows of a file with one and the same fault are told in one line
NO_MAP: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Fault:
    """One bad row.

    Attributes:
        source: `file:line`, as the user named the file.
        reason: what is wrong, in words for a user.
    """

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass
class Source:
    """Rows that can be read as often as wanted, one at a time.

    Attributes:
        name: what the user gave.
        format: what the rows were taken for, for example `messages`, `alpaca`, `csv`.
        why: what it was recognised by.
        files: split to file; a single file is all `train`.
        is_single_file: whether the splits have yet to be cut.
        blank_lines: file name to count of blank lines, where there are any; filled while rows are read.
    """

    name: str
    format: str
    why: str
    files: dict[str, Path]
    is_single_file: bool
    shared: ToolSet
    style: str
    blank_lines: dict[str, int] = field(default_factory=dict)

    def rows(self, split: str) -> Iterator[Row | Fault]:
        """Yield every row of a split in file order, or what is wrong with it; each call begins anew.

        Raises:
            StageError: the file has gone or cannot be read.
        """
        file = self.files[split]
        shown, blank = self._shown(file), 0
        self.blank_lines.pop(file.name, None)
        for number, item in lines_of(file):
            if item is None:
                blank += 1
                self.blank_lines[file.name] = blank
            elif isinstance(item, str):
                yield Fault(f"{shown}:{number}", item)
            else:
                yield self._row(item, f"{shown}:{number}")

    def _row(self, value: dict[str, Any], source: str) -> Row | Fault:
        try:
            return read_row(value, source, self.shared, self.style)
        except ValueError as error:
            return Fault(source, str(error))

    def _shown(self, file: Path) -> str:
        # a shipped set is named, not located
        return str(file) if Path(self.name).exists() else f"{self.name}/{file.name}"


@dataclass
class Loaded:
    """All rows of a source.

    Attributes:
        splits: split to rows; a single file is all `train`.
        blank_lines: file to count of blank lines, where there are any.
        is_single_file: whether the splits have yet to be cut.
    """

    splits: dict[str, list[Row]]
    blank_lines: dict[str, int] = field(default_factory=dict)
    is_single_file: bool = False


def shipped_sets() -> dict[str, Path]:
    """Return name to folder of the data sets in the package."""
    root = Path(str(importlib.resources.files("mlx_sentis"))) / "data"
    folders = root.iterdir() if root.is_dir() else ()
    return {folder.name: folder for folder in sorted(folders) if (folder / "train.jsonl").is_file()}


def open_source(source: str | Path, style: str, *, format: str = "auto", mapping: Mapping[str, str] = NO_MAP) -> Source:
    """Find a source's files and what their rows are; no row but the first ones is read.

    Args:
        source: a file, a folder of `{train,valid,calibration,holdout}.jsonl`, or a shipped set's name.
        style: the recipe's `tools`.
        format: what the rows are to be taken for; `auto` recognises it.
        mapping: field to the column or key that holds it.

    Raises:
        StageError: no such source, or one that holds no rows or cannot be read.
    """
    path = Path(source)
    if not path.exists():
        sets = shipped_sets()
        if str(source) not in sets:
            hint = f"give a .jsonl file, a folder with train.jsonl, or a shipped set: {', '.join(sets) or 'none'}"
            raise StageError(f"{source}: no such file, folder or shipped set", hint=hint)
        path = sets[str(source)]
    files = split_files(path) if path.is_dir() else {"train": path}
    shared = read_tool_set((path if path.is_dir() else path.parent) / "tools.json")
    for file in files.values():
        require_lines(file)
    return Source(str(source), "jsonl", "JSON lines", files, not path.is_dir(), shared, style)


def load_source(source: str | Path, style: str, *, format: str = "auto", mapping: Mapping[str, str] = NO_MAP) -> Loaded:
    """Read every row of a source at once (`open_source` reads them one at a time).

    Raises:
        StageError: no such source, or its bad rows, all of them at once as `file:line: reason`.
    """
    opened = open_source(source, style, format=format, mapping=mapping)
    splits: dict[str, list[Row]] = {split: [] for split in opened.files}
    faults: list[Fault] = []
    for split, rows in splits.items():
        for row in opened.rows(split):
            faults.append(row) if isinstance(row, Fault) else rows.append(row)
    if faults:
        raise bad_rows(opened.name, faults)
    return Loaded(splits, opened.blank_lines, opened.is_single_file)


def bad_rows(name: str, faults: Sequence[Fault]) -> StageError:
    """Return the one error that lists all bad rows; many with one cause are one line."""
    causes: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        causes.setdefault((fault.source.rpartition(":")[0], fault.reason), []).append(fault)
    lines: list[str] = []
    for same in causes.values():
        if len(same) < SAME_CAUSE:
            lines += map(str, same)
        else:
            lines.append(f"{same[0]} (and {counted(len(same) - 1, 'row')} below it)")
    return all_at_once(f"{name}: {counted(len(faults), 'bad row')}, nothing was written:", lines, hint=FORM_HINT)


def split_files(folder: Path) -> dict[str, Path]:
    """Return split to file of a data folder.

    Raises:
        StageError: no train.jsonl, a name that is no split's, or two files for one split.
    """
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.jsonl")):
        split = ALIASES.get(file.stem, file.stem)
        if split not in SPLITS:
            known = ", ".join(f"{name}.jsonl" for name in SPLITS)
            raise StageError(f"{file}: no split has this name", hint=f"known: {known}; or give the file itself as DATA")
        if split in files:
            raise StageError(f"{file}: {files[split].name} is there for the same split", hint="keep one of them")
        files[split] = file
    if "train" not in files:
        raise StageError(f"{folder}: no train.jsonl in it", hint="name the training rows train.jsonl, or give one file")
    return {split: files[split] for split in SPLITS if split in files}


def read_tool_set(path: Path) -> ToolSet:
    """Return what a `tools.json` says; an empty set when there is none.

    Raises:
        StageError: it is there and not `{"instruction", "tools"}` (or a bare array of tools).
    """
    if not path.is_file():
        return ToolSet()
    hint = 'wanted {"instruction": text, "tools": [{"name", "description", "parameters"}]}'
    try:
        value = loads(path.read_bytes().removeprefix(BOM).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(f"{path}: {error}", hint=hint) from None
    value = {"tools": value} if isinstance(value, list) else value
    if not isinstance(value, dict):
        raise StageError(f"{path}: found {name_of(value)}", hint=hint)
    instruction = value.get("instruction", "")
    if not isinstance(instruction, str):
        raise StageError(f"{path}: instruction: found {name_of(instruction)}", hint=hint)
    try:
        return ToolSet(instruction.strip(), normalised_tools(value.get("tools")))
    except ValueError as error:
        raise StageError(f"{path}: {error}", hint=hint) from None
