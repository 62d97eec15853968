"""Where rows come from: a shipped set by name, a folder with one file per split, a single file, a data set on disk.

What a file is, its suffix says, or `format`; what its rows are, their keys say. Both are named in `Source.format` and
`Source.why`, and nothing is guessed twice: `format` and `mapping` decide where they are given.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mlx_sentis.prepare.formats import bfcl
from mlx_sentis.prepare.formats.columns import renamed
from mlx_sentis.prepare.formats.command import read_tool_set
from mlx_sentis.prepare.formats.containers import SUFFIXES, Part, check_format, part_of, part_of_dataset
from mlx_sentis.prepare.formats.huggingface import is_dataset, open_dataset
from mlx_sentis.prepare.formats.recognition import form_of_part, recognised
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from weights_bridge.errors import StageError, UsedWronglyError, all_at_once, counted

SPLITS = ("train", "valid", "calibration", "holdout")
ALIASES = {"validation": "valid", "dev": "valid", "test": "holdout"}  # what others call them
FORM_HINT = "`mlx-sentis prepare --help` and the README show the forms; format and map say what a file's own words mean"
SKIP_HINT = "; --skip-bad (of `run`: --set data.skip_bad=true) leaves the rows out"
HINTS = {  # words of a reason: how such a row is mended; the first that fits
    "not UTF-8": "save the file again as UTF-8",
    "is no JSON number": "write null where a value is missing, or leave the key out",
    "not JSON": "write each row with a JSON library, one object per line",
    "not usable JSON": "mend these lines: readers do not agree on what they say",
}
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
        parts: split to its file, opened; a single file is all `train`.
        is_single_file: whether the splits have yet to be cut.
        blank_lines: file name to count of blank lines, where there are any; filled while rows are read.
        remarks: `file:line` to what is odd about a row that was read all the same; filled while rows are read.
    """

    name: str
    format: str
    why: str
    parts: dict[str, Part]
    forms: dict[str, str | None]
    is_single_file: bool
    shared: ToolSet
    style: str
    mapping: dict[str, str] = field(default_factory=dict)
    blank_lines: dict[str, int] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Path]:
        """Split to file."""
        return {split: part.place for split, part in self.parts.items()}

    def rows(self, split: str) -> Iterator[Row | Fault]:
        """Yield every row of a split in file order, or what is wrong with it; each call begins anew.

        Raises:
            StageError: the file has gone or cannot be read.
        """
        part, form, blank = self.parts[split], self.forms[split], 0
        self.blank_lines.pop(part.place.name, None)
        for number, item in part.items():
            source = f"{part.shown}:{number}"
            if item is None:
                blank += 1
                self.blank_lines[part.place.name] = blank
            elif isinstance(item, str):
                yield Fault(source, item)
            else:
                yield self._row(item, source, form)

    def _row(self, value: dict[str, Any], source: str, form: str | None) -> Row | Fault:
        try:
            value = renamed(value, self.mapping) if self.mapping else value
            row = read_row(value, source, self.shared, self.style, form)
        except ValueError as error:
            return Fault(source, str(error))
        if row.remark:
            self.remarks[source] = row.remark
        return row


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
        source: a file, a folder of `{train,valid,calibration,holdout}.*`, a Hugging Face data set on disk, or a
            shipped set's name.
        style: the recipe's `tools`.
        format: what the rows are to be taken for; `auto` recognises it.
        mapping: field to the column or key that holds it (`read_map`).

    Raises:
        UsedWronglyError: no such format, or an empty name.
        StageError: no such source, or one that holds no rows, cannot be read, or has no column of that name.
    """
    check_format(format)
    path = named_place(source)
    if not path.exists():
        sets = shipped_sets()
        if str(source) not in sets:
            hint = f"give a data file, a folder with train.jsonl, or a shipped set: {', '.join(sets) or 'none'}"
            raise StageError(f"{source}: no such file, folder or shipped set", hint=hint)
        path = sets[str(source)]
    parts = _parts(path, str(source), format)
    shared = read_tool_set((path if path.is_dir() else path.parent) / "tools.json")
    forms = {split: form_of_part(part, format, mapping) for split, part in parts.items()}
    name, why = recognised(parts["train"], forms["train"], format, mapping)
    is_single_file = list(parts) == ["train"] and (path.is_file() or is_dataset(path))
    return Source(str(source), name, why, parts, forms, is_single_file, shared, style, dict(mapping))


def named_place(source: str | Path) -> Path:
    """Return the path that a source's name would be.

    Raises:
        UsedWronglyError: the name is empty.
        StageError: something is there that is neither a file nor a folder: a device, a pipe.
    """
    path = Path(source)
    if not str(source).strip():
        raise UsedWronglyError("DATA: the name is empty", hint="give a data file, a folder or a shipped set's name")
    if path.exists() and not path.is_file() and not path.is_dir():
        what = f"{source}: neither a file nor a folder"
        raise StageError(what, hint="rows are read twice, so a device or a pipe will not do: write them to a file")
    return path


def _parts(path: Path, name: str, format: str) -> dict[str, Part]:
    if format == "datasets" or (format not in ("json", "jsonl", "csv", "tsv") and is_dataset(path)):
        return _dataset_parts(path, name)
    if path.is_file():
        return {"train": part_of(path, str(path), format)}
    files = split_files(path)
    located = Path(name) == path  # a shipped set is named, not located
    return {
        split: part_of(file, str(file) if located else f"{name}/{file.name}", format) for split, file in files.items()
    }


def _dataset_parts(path: Path, name: str) -> dict[str, Part]:
    found = open_dataset(path)
    splits = {ALIASES.get(split, split): split for split in found}
    if list(found) == [""]:
        return {"train": part_of_dataset(found[""], name)}
    unknown = [split for split in splits if split not in SPLITS]
    if unknown or len(splits) < len(found) or "train" not in splits:
        message = (
            f"{path}: its splits are {', '.join(map(repr, found))}, wanted train and some of {', '.join(SPLITS[1:])}"
        )
        raise StageError(message, hint=f"rename or remove the others ({', '.join(ALIASES)} are understood too)")
    return {
        split: part_of_dataset(found[splits[split]], f"{name}/{splits[split]}") for split in SPLITS if split in splits
    }


def load_source(source: str | Path, style: str, *, format: str = "auto", mapping: Mapping[str, str] = NO_MAP) -> Loaded:
    """Read every row of a source at once (`open_source` reads them one at a time).

    Raises:
        StageError: no such source, or its bad rows, all of them at once as `file:line: reason`.
    """
    opened = open_source(source, style, format=format, mapping=mapping)
    splits: dict[str, list[Row]] = {split: [] for split in opened.parts}
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
    found = {next((hint for words, hint in HINTS.items() if words in reason), "") for _, reason in causes}
    hint = "; ".join([*sorted(filter(None, found)), *([FORM_HINT] if "" in found else [])]) + SKIP_HINT
    return all_at_once(f"{name}: {counted(len(faults), 'bad row')}, nothing was written:", lines, hint=hint)


def split_files(folder: Path) -> dict[str, Path]:
    """Return split to file of a data folder.

    Raises:
        StageError: no train file, a name that is no split's, or two files for one split.
    """
    files: dict[str, Path] = {}
    for file in sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file()):
        split = ALIASES.get(file.stem, file.stem)
        if split not in SPLITS:
            if file.suffix.lower() not in (".jsonl", ".csv", ".tsv"):  # tools.json, README.md, LICENSE.txt
                continue
            known = ", ".join(f"{name}{file.suffix}" for name in SPLITS)
            raise StageError(f"{file}: no split has this name", hint=f"known: {known}; or give the file itself as DATA")
        if split in files:
            raise StageError(f"{file}: {files[split].name} is there for the same split", hint="keep one of them")
        files[split] = file
    if "train" not in files:
        hint = "name the training rows train.jsonl (or .json, .csv, .tsv, .txt), or give one file"
        if (folder / bfcl.ANSWERS).is_dir():
            hint = f"give one of its question files; the answers are found in {bfcl.ANSWERS}/"
        raise StageError(f"{folder}: no train.jsonl in it", hint=hint)
    return {split: files[split] for split in SPLITS if split in files}
