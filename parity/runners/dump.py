"""What the kit's harness left of one run in Unity: `dump.json` as values. No tensor is read here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.runners.recorded_form import DumpFault, checked_dump
from weights_bridge.errors import StageError, all_at_once

HINT = "run the kit's harness again, or copy its whole output folder"


@dataclass(frozen=True)
class Tensor:
    """One output as the dump lists it.

    Attributes:
        name: the model's output name.
        dtype: `float32` or `int32`.
        shape: its sizes.
        file: raw little-endian bytes, seen from the dump's folder; None without elements.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str | None

    @property
    def size_bytes(self) -> int:
        return 4 * int(np.prod(self.shape, dtype=object))


@dataclass(frozen=True)
class Run:
    """One fixture on one backend.

    Attributes:
        backend: `CPU` or `GPUCompute`.
        fixture: its name.
        fixture_sha256: hash of the inputs that were run.
        milliseconds: one per repetition, the first included.
        error: what was thrown; then there are no outputs.
        outputs: in the model's order.
    """

    backend: str
    fixture: str
    fixture_sha256: str
    milliseconds: tuple[float, ...]
    error: str
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class DumpedModel:
    """One model of a dump.

    Attributes:
        file: its name in Unity.
        sha256: of the file that was imported.
        imported: whether the import ended without an error.
        warnings: what the importer said.
        errors: why it failed.
        runs: none where the import failed.
    """

    file: str
    sha256: str
    imported: bool
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Dump:
    """What one run of the harness left.

    Attributes:
        folder: where it lies.
        package: `com.unity.ai.inference`.
        version: of the package, `2.6.0`.
        unity: version of the editor.
        date: day of the run.
        device: processor and graphics device.
        models: what was imported.
    """

    folder: Path
    package: str
    version: str
    unity: str
    date: str
    device: str
    models: tuple[DumpedModel, ...]


def read_dump(folder: Path) -> Dump:
    """Read `dump.json` and check its form; no tensor is read yet.

    Raises:
        StageError: no folder, no file, not JSON, another schema, a field that is missing or of another kind, a path
            that leads out of the folder. All faults are named at once.
    """
    path = folder / "dump.json"
    if not folder.is_dir():
        raise StageError(f"{folder}: no such folder", hint="give the folder the kit's harness wrote")
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise StageError(f"{path}: not a file, but a folder or a pipe", hint=HINT)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path}: no such file: the harness writes it last, so this run did not end"
        raise StageError(message, hint=HINT) from None
    except OSError as error:
        raise StageError(f"{path}: {error.strerror or error}", hint=HINT) from None
    except UnicodeDecodeError as error:
        raise StageError(f"{path}: not UTF-8 text (byte {error.start})", hint=HINT) from None
    except json.JSONDecodeError as error:
        raise StageError(f"{path}:{error.lineno}: not JSON: {error.msg}", hint=HINT) from None
    except (RecursionError, ValueError) as error:  # nested without end, or a number of more digits than Python reads
        raise StageError(f"{path}: not readable as JSON: {error}", hint=HINT) from None
    try:
        return _dump(folder, checked_dump(document, folder))
    except DumpFault as fault:
        raise all_at_once(f"{path}: not a dump:", fault.faults, hint=HINT) from None


def _dump(folder: Path, document: dict) -> Dump:
    head = {key: document[key] for key in ("package", "version", "unity", "date", "device")}
    return Dump(folder, **head, models=tuple(map(_model, document["models"])))


def _model(entry: dict) -> DumpedModel:
    told = entry["import"]
    said = (tuple(told["warnings"]), tuple(told["errors"]))
    return DumpedModel(entry["file"], entry["sha256"].lower(), told["ok"], *said, tuple(map(_run, entry["runs"])))


def _run(entry: dict) -> Run:
    outputs = tuple(Tensor(o["name"], o["dtype"], tuple(o["shape"]), o["file"]) for o in entry["outputs"])
    times = tuple(map(float, entry["milliseconds"]))
    return Run(
        entry["backend"], entry["fixture"], entry["fixture_sha256"].lower(), times, entry.get("error", ""), outputs
    )
