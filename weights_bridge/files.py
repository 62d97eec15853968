"""Files that appear whole or not at all, and their hashes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weights_bridge.errors import StageError


class CannotWriteError(StageError):
    """The system refused a write.

    Args:
        path: the file or folder, as the user knows it.
        error: what the system said.
        kept: what became of what was there.
    """

    def __init__(self, path: Path, error: OSError, *, kept: str = "nothing was changed") -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else (error.strerror or str(error))
        if isinstance(error.filename, str) and f".{path.name}-" not in error.filename:
            why += f" ({error.filename})"  # the fault lies elsewhere: a folder above, or something that was read
        hint = "free some room and run the stage again" if full else "choose a folder that can be written with --out"
        super().__init__(f"{path}: cannot be written: {why}; {kept}", hint=hint)
        self.error = error


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_of_text(text: str) -> str:
    """Return the hexadecimal SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path beside `path`; move it into place when the block ends well, drop it when not.

    The temporary name starts with a dot and lies in the same folder, so the final rename is atomic and a
    killed process leaves at most a dot-file that nothing reads.

    Raises:
        StageError: the disk is full or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise CannotWriteError(path, error) from error
    beside = Path(name)
    try:
        yield beside
        with beside.open("rb") as file:  # on the disk before the name points at it
            os.fsync(file.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except OSError as error:
        raise CannotWriteError(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside `folder`; it takes `folder`'s place when the block ends well.

    What stood there before stays until the new one is complete, and comes back when the last rename fails.

    Raises:
        StageError: the disk is full or the place cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        bring_back(folder)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    try:
        beside = work / "new"
        beside.mkdir()
        yield beside
        _take_the_place(beside, folder, work / "old")
    except CannotWriteError as fault:  # of one file inside: name the folder the user knows, not the hidden one
        raise CannotWriteError(folder, fault.error) from fault
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def bring_back(folder: Path) -> bool:
    """Undo a folder swap that a kill cut between its two renames: the old folder takes its place again.

    Returns:
        Whether there was something to bring back.
    """
    if folder.exists():
        return False
    left = sorted(folder.parent.glob(f".{folder.name}-*/old"), key=lambda path: path.stat().st_mtime)
    if not left:
        return False
    left[-1].rename(folder)
    shutil.rmtree(left[-1].parent, ignore_errors=True)
    return True


def _take_the_place(new: Path, folder: Path, old: Path) -> None:
    had = folder.exists()
    if had:
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if had:
            old.rename(folder)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all, with `\\n` line ends on every system."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON document (indent 2, real characters, no NaN) whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


WRITTEN_BY = {
    "manifest.json": "no stage can mend it: run into a new folder",
    "recipe.json": "`mlx-sentis prepare` (or `run --from recipe`) writes it again",
    "prompt_contract.json": "`mlx-sentis prepare` (or `run --from prepare`) writes it again",
    "dataset.json": "`mlx-sentis prepare` (or `run --from prepare`) writes it again",
    "contract.json": "`mlx-sentis export` (or `run --from export`) writes it again",
    "a0.json": "`mlx-sentis bridge RUN` writes it again",
    "a-base.json": "`mlx-sentis parity RUN --edge a` writes it again",
    "a.json": "`mlx-sentis parity RUN --edge a` writes it again",
    "axes.json": "`mlx-sentis eval RUN` writes it again",
    "state.json": "`mlx-sentis train` writes it again",
}


def read_json(path: Path) -> Any:
    """Read a JSON document.

    Raises:
        StageError: missing, not readable or not JSON, with the line.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = WRITTEN_BY.get(path.name, "run the stage that writes it first")
        raise StageError(f"{path}: no such file", hint=hint) from None
    except UnicodeDecodeError as error:
        hint = WRITTEN_BY.get(path.name, "save it again as UTF-8")
        raise StageError(f"{path}: not UTF-8 text (byte {error.start})", hint=hint) from None
    except json.JSONDecodeError as error:
        hint = WRITTEN_BY.get(path.name, "mend or make the file again")
        raise StageError(f"{path}:{error.lineno}: not JSON: {error.msg}", hint=hint) from None
    except (OSError, RecursionError, ValueError) as error:  # a folder, no permission; too deep, a number too long
        why = (isinstance(error, OSError) and error.strerror) or str(error).partition(";")[0]
        raise StageError(f"{path}: not read: {why}", hint=WRITTEN_BY.get(path.name, "mend the file again")) from None


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """Read a JSON object that one of our own stages wrote.

    Args:
        path: the file.
        keys: what it must have; `model.path` lies in an object `model`.

    Raises:
        StageError: missing, not JSON, no object, or without a key; all keys at once.
    """
    document, hint = read_json(path), WRITTEN_BY.get(path.name, "run the stage that writes it again")
    if not isinstance(document, dict):
        raise StageError(f"{path}: found {type(document).__name__}, wanted an object", hint=hint)
    lacking = []
    for key in keys:
        inner: Any = document
        for name in key.split("."):
            inner = inner.get(name) if isinstance(inner, dict) else None
        if inner is None:
            lacking.append(key)
    if lacking:
        raise StageError(f"{path}: lacks {', '.join(lacking)}", hint=hint)
    return document


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object per line, whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file that one of our own stages wrote."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:  # splitlines() would also cut at U+2028 inside a text
            lines = file.readlines()
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="run `mlx-sentis prepare` first") from None
    except UnicodeDecodeError as error:
        raise StageError(f"{path}: not UTF-8 text (byte {error.start})", hint="prepare the data again") from None
    except OSError as error:
        raise StageError(f"{path}: not read: {error.strerror}", hint="prepare the data again") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise StageError(f"{path}:{number}: not JSON: {error.msg}", hint="prepare the data again") from None
    return rows
