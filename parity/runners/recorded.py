"""Outputs that Sentis computed in Unity, from the folder that the kit's parity harness wrote (docs/sentis-dump.md).

A folder that cannot be read raises (`parity/runners/dump.py`); one that can but is of something else (another model,
fixture or package, a tensor that is missing, too short or not a number) answers with failed results, each with a reason
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from parity.runners.dump import Dump, DumpedModel, Run, Tensor
from weights_bridge.compare import Array, GateResult
from weights_bridge.sentis_version import minor_version

# What a dump can lack without a word about the model in it; what Unity itself says (import failed, run failed) and
# outputs that it lists otherwise than the graph (missing, extra) are not among them.
OF_THE_DUMP = frozenset({
    "another version", "another model", "another fixture", "nothing was run", "not recorded", "no file", "truncated",
    "too long",
})  # fmt: skip
PACKAGE = "com.unity.ai.inference"
DTYPES = {"float32": "<f4", "int32": "<i4"}


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
