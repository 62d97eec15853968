"""Manifests of media: JSON lines whose rows name a file, with a transcript (`audio`, `text`) or with `boxes`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from mlx_sentis.prepare.jsonl import lines_of, name_of

Kind = Literal["audio", "boxes"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Manifest:
    """Manifest files of one kind.

    Attributes:
        kind: what the rows have.
        files: JSON-lines files; media are named relative to the folder of their manifest.
    """

    kind: Kind
    files: list[Path]


@dataclass(frozen=True)
class MediaRow:
    """One row of a manifest.

    Attributes:
        source: `file:line`.
        folder: what its files are relative to.
        value: the row's object, or why there is none.
    """

    source: str
    folder: Path
    value: dict[str, Any] | str


def find_manifest(path: Path) -> Manifest | None:
    """Return the manifest that a file or folder is, None where its rows are of another kind.

    Raises:
        StageError: a file cannot be read.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.suffix in (".jsonl", ".json") else []
    kinds: dict[Path, Kind] = {file: kind for file in files if (kind := _kind_of(file))}
    if not kinds:
        return None
    kind = next(iter(kinds.values()))
    return Manifest(kind, [file for file, found in kinds.items() if found == kind])


def _kind_of(file: Path) -> Kind | None:
    first = next((item for _, item in lines_of(file) if isinstance(item, dict)), {})
    return next((kind for kind in KINDS if kind in first), None)


def media_rows(manifest: Manifest) -> Iterator[MediaRow]:
    """Yield the rows of a manifest; blank lines are skipped."""
    for file in manifest.files:
        for number, item in lines_of(file):
            if item is not None:
                yield MediaRow(f"{file}:{number}", file.parent, item)


def named_file(row: MediaRow, key: str) -> Path | str:
    """Return the file that a row names under a key (a text, or an object with `path`), or why there is none."""
    if isinstance(row.value, str):
        return row.value
    name = row.value.get(key)
    name = name.get("path") if isinstance(name, dict) else name
    if not isinstance(name, str) or not name.strip():
        return f"{key}: found {name_of(name)}, wanted the path of a file"
    return row.folder / name
