"""Outputs that Sentis computed in Unity, from the folder that the kit's parity harness wrote (docs/sentis-dump.md).

A folder that cannot be read raises; one that can but is of something else (another model, fixture or package, a tensor
that is missing, too short or not a number) answers with failed results, each with a reason of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from parity.runners.recorded_form import DumpFault, checked_dump
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.sentis_version import minor_version

HINT = "run the kit's harness again, or copy its whole output folder"
# What a dump can lack without a word about the model in it; what Unity itself says (import failed, run failed) and
# outputs that it lists otherwise than the graph (missing, extra) are not among them.
OF_THE_DUMP = frozenset({
    "another version", "another model", "another fixture", "nothing was run", "not recorded", "no file", "truncated",
    "too long",
})  # fmt: skip
PACKAGE = "com.unity.ai.inference"
DTYPES = {"float32": "<f4", "int32": "<i4"}


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


@dataclass(frozen=True)
class Recorded:
    """What a dump has of one fixture on one backend.

    Attributes:
        backend: `CPU` or `GPUCompute`; empty where nothing of the model was run.
        outputs: output name to array, float32 or int32.
        faults: why there is nothing, or not everything, to compare.
        milliseconds: as recorded.
    """

    backend: str
    outputs: Mapping[str, Array] = field(default_factory=dict)
    faults: Sequence[GateResult] = ()
    milliseconds: tuple[float, ...] = ()


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


def version_fault(dump: Dump, wanted: str) -> GateResult | None:
    """Return a failed result where a dump is of another package version: 2.6.0 and 2.6.1 are 2.6, 2.60.0 is not."""
    same = minor_version(dump.version) == minor_version(wanted)
    if same and dump.package == PACKAGE:
        return None
    if same:
        detail = f"found {dump.package}, wanted {PACKAGE}; dump with that package"
        return GateResult("package", False, "another version", where="dump.json", detail=detail)
    detail = f"found {dump.package} {dump.version}, wanted {wanted}; give --sentis, or dump with that package"
    return GateResult("package", False, "another version", where="dump.json", detail=detail)


def model_of(dump: Dump, sha256: str, name: str) -> DumpedModel | GateResult:
    """Return a dump's model by the hash of its file, or why it has none that was imported."""
    found = next((model for model in dump.models if model.sha256 == sha256), None)
    if found is None:
        listed = ", ".join(f"{model.file} {model.sha256[:12]}…" for model in dump.models) or "no model"
        detail = f"found {listed}, wanted {name} {sha256[:12]}…; import this very file in Unity"
        return GateResult("model", False, "another model", where="dump.json", detail=detail)
    if not found.imported:
        detail = "; ".join(found.errors) or "Unity gave no message"
        return GateResult("model", False, "import failed", where=found.file, detail=detail)
    if not found.runs:
        return GateResult("model", False, "nothing was run", where=found.file, detail="imported, but no run of it")
    return found


def recorded_outputs(dump: Dump, model: DumpedModel, name: str, sha256: str, wanted: Iterable[str]) -> list[Recorded]:
    """Return what was recorded of one fixture, one entry per backend of the model.

    Args:
        dump: for its folder.
        model: the model, by its hash.
        name: the fixture's name, by which one that was altered is told from one that is missing.
        sha256: hash of its inputs.
        wanted: the model's output names.
    """
    return [
        _of_backend(dump, [run for run in model.runs if run.backend == backend], name, sha256, set(wanted), backend)
        for backend in dict.fromkeys(run.backend for run in model.runs)
    ]


def _of_backend(dump: Dump, runs: Sequence[Run], name: str, sha256: str, wanted: set[str], backend: str) -> Recorded:
    run = next((run for run in runs if run.fixture_sha256 == sha256), None)
    if run is None:
        other = next((run for run in runs if run.fixture == name), None)
        if other is None:
            listed = ", ".join(sorted(run.fixture for run in runs))
            return _failed(backend, name, "not recorded", f"no run of it; the dump has {listed}")
        found = f"its inputs have sha256 {other.fixture_sha256[:12]}…, wanted {sha256[:12]}…"
        return _failed(backend, name, "another fixture", f"{found}; run this fixture in Unity")
    if run.error:
        return _failed(backend, name, "run failed", run.error)
    outputs, faults = {}, []
    listed = {tensor.name for tensor in run.outputs}
    unknown = ", ".join(sorted(listed - wanted))
    also = f"; the dump has {unknown} instead" if unknown else ""
    told = {"missing": f"the graph puts it out, the dump has none{also}", "extra": "the graph has no such output"}
    for reason, names in (("missing", wanted - listed), ("extra", listed - wanted)):
        faults += [_fault(backend, name, n, reason, told[reason]) for n in sorted(names)]
    for tensor in run.outputs:
        read = _read(dump.folder, tensor) if tensor.name in wanted else None
        if isinstance(read, str):
            reason, _, detail = read.partition(": ")
            faults.append(_fault(backend, name, tensor.name, reason, detail))
        elif read is not None:
            outputs[tensor.name] = read
    return Recorded(backend, outputs, faults, run.milliseconds)


def _failed(backend: str, fixture: str, reason: str, detail: str) -> Recorded:
    return Recorded(backend, faults=[GateResult(f"{backend} / {fixture}", False, reason, where=fixture, detail=detail)])


def _fault(backend: str, fixture: str, tensor: str, reason: str, detail: str) -> GateResult:
    return GateResult(f"{backend} / {fixture} / {tensor}", False, reason, where=tensor, detail=detail)


def _read(folder: Path, tensor: Tensor) -> Array | str:
    """Return a tensor, or `reason: detail` where its file is not there or of another length."""
    if tensor.file is None:
        return np.zeros(tensor.shape, DTYPES[tensor.dtype])
    path = folder / tensor.file
    wanted = f"{tensor.size_bytes} bytes ({tensor.dtype} {list(tensor.shape)})"
    try:
        if not path.is_file():  # raises where the name is longer than a file's name may be
            return f"no file: {tensor.file}: no such file, wanted {wanted}"
        found = path.stat().st_size
        if found != tensor.size_bytes:
            reason = "truncated" if found < tensor.size_bytes else "too long"
            return f"{reason}: {tensor.file}: found {found} bytes, wanted {wanted}"
        array = np.fromfile(path, DTYPES[tensor.dtype])
    except OSError as error:
        return f"no file: {tensor.file[:80]}: {error.strerror or error}, wanted {wanted}"
    return array.reshape(tensor.shape).astype(tensor.dtype, copy=False)
