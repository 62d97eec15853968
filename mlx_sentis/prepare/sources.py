"""Where rows come from: a shipped set by name, a folder with one file per split, or a single file."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass, field
from pathlib import Path

from mlx_sentis.prepare.jsonl import BOM, loads, name_of, read_lines
from mlx_sentis.prepare.rows import NoToolsError, Row, ToolSet, read_row
from mlx_sentis.prepare.tools import normalised_tools
from weights_bridge.errors import StageError, all_at_once, counted

SPLITS = ("train", "valid", "calibration", "holdout")
ALIASES = {"validation": "valid", "test": "holdout"}  # what other trainers call them
FORM_HINT = "one object per line; `mlx-sentis prepare --help` and the README show the forms"


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


def load_source(source: str | Path, style: str) -> Loaded:
    """Read every row of a source.

    Args:
        source: a file, a folder of `{train,valid,calibration,holdout}.jsonl`, or a shipped set's name.
        style: the recipe's `tools`.

    Raises:
        StageError: no such source, or its bad rows, all of them at once as `file:line: reason`.
    """
    path = Path(source)
    if not path.exists():
        sets = shipped_sets()
        if str(source) not in sets:
            hint = f"give a .jsonl file, a folder with train.jsonl, or a shipped set: {', '.join(sets) or 'none'}"
            raise StageError(f"{source}: no such file, folder or shipped set", hint=hint)
        path = sets[str(source)]
    files = split_files(path) if path.is_dir() else {"train": path}
    names = {split: _shown(source, path, file) for split, file in files.items()}
    loaded = Loaded({}, is_single_file=not path.is_dir())
    shared = read_tool_set((path if path.is_dir() else path.parent) / "tools.json")
    faults: list[str] = []
    for split, file in files.items():
        loaded.splits[split] = _read_file(file, names[split], shared, style, faults, loaded.blank_lines)
    if faults:
        raise all_at_once(f"{source}: {counted(len(faults), 'bad row')}, nothing was written:", faults, hint=FORM_HINT)
    return loaded


def _shown(source: str | Path, path: Path, file: Path) -> str:
    return str(file) if Path(source) == path else f"{source}/{file.name}"  # a shipped set is named, not located


def _read_file(
    file: Path, shown: str, shared: ToolSet, style: str, faults: list[str], blank_lines: dict[str, int]
) -> list[Row]:
    lines = read_lines(file)
    faults += [f"{shown}:{number}: {reason}" for number, reason in lines.faults]
    if lines.blank:
        blank_lines[file.name] = lines.blank
    rows, homeless = [], []
    for number, value in lines.objects:
        try:
            rows.append(read_row(value, f"{shown}:{number}", shared, style))
        except NoToolsError:  # one missing file, not one fault per row
            homeless.append(number)
        except ValueError as error:
            faults.append(f"{shown}:{number}: {error}")
    if homeless:
        rest = f" (and {counted(len(homeless) - 1, 'row')} below it)" if len(homeless) > 1 else ""
        faults.append(f"{shown}:{homeless[0]}: {NoToolsError()}{rest}")
    return rows


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
