"""What a version of Sentis does otherwise than its facts say: the measured probe pack against ONNX and prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.emulator import predict
from parity.fixtures import read_fixture
from parity.runners.dump import Dump, DumpedModel, read_dump
from parity.runners.recorded import recorded_outputs
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json, sha256_of
from weights_bridge.sentis_dump import fixture_sha256

INDEX, SCHEMA = "probes.json", "mlx-sentis/probes/1"
TOLERANCE = (
    1e-4  # of the largest number: far above the rounding of tiny graphs, far below what a dropped attribute does
)
AS_ONNX, FAILS, UNKNOWN = "as ONNX", "fails", "not predicted"
HINT = "`mlx-sentis unity --probes --out DIR` writes it again; then measure again"


@dataclass(frozen=True)
class Answer:
    """What one side says to a probe.

    Attributes:
        word: `as ONNX`, `otherwise`, `fails`, `not predicted`.
        detail: by how much otherwise, or why.
        outputs: what was computed; empty where nothing was.
    """

    word: str
    detail: str
    outputs: Mapping[str, Array]

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


@dataclass(frozen=True)
class Row:
    """One probe's fixture on one backend.

    Attributes:
        probe: its name.
        fixture: name of the inputs.
        backend: `CPU` or `GPUCompute`.
        asks: what it tells.
        predicted: what the facts of the version say.
        measured: what Unity put out.
        agrees: whether both are the same; None where nothing was predicted.
    """

    probe: str
    fixture: str
    backend: str
    asks: str
    predicted: str
    measured: str
    agrees: bool | None


@dataclass(frozen=True)
class Reading:
    """The whole pack.

    Attributes:
        facts: version of the facts that predicted.
        version: of the package that was measured.
        date: of the measurement.
        rows: in the order of the pack.
    """

    facts: str
    version: str
    date: str
    rows: list[Row]

    @property
    def findings(self) -> list[Row]:
        """What was measured otherwise than predicted."""
        return [row for row in self.rows if row.agrees is False]

    @property
    def news(self) -> list[Row]:
        """What nothing was predicted of."""
        return [row for row in self.rows if row.agrees is None]

    def as_json(self) -> dict[str, Any]:
        counts = {word: sum(row.agrees is is_so for row in self.rows) for word, is_so in AGREEMENT.items()}
        head = {"facts": self.facts, "version": self.version, "date": self.date, "counts": counts}
        return head | {"rows": [asdict(row) for row in self.rows]}


AGREEMENT = {"as predicted": True, "otherwise": False, "not predicted": None}


def read_probes(pack: Path, dump_folder: Path, facts: str) -> Reading:
    """Hold a measured probe pack against ONNX and against the facts of a version.

    Args:
        pack: `Probes~` of a kit.
        dump_folder: what the harness wrote of it.
        facts: the version whose facts predict.

    Raises:
        StageError: pack or dump cannot be read, or the dump is of other files.
    """
    if not (pack / INDEX).is_file():
        raise StageError(
            f"{pack}: no pack of probes (no {INDEX})",
            hint="give the folder Probes~ that `mlx-sentis unity --probes` writes",
        )
    listed = _listed(pack)
    dump = read_dump(dump_folder)
    models = {model.sha256: model for model in dump.models}
    rows: list[Row] = []
    for probe in listed:
        model = models.get(sha256_of(pack / probe["model"]))
        if model is None:
            raise StageError(f"{dump_folder}: nothing of {probe['model']}, or of another file of that name", hint=HINT)
        for name in probe["fixtures"]:
            rows += _rows(probe, pack, name, dump, model, facts)
    return Reading(facts, dump.version, dump.date, rows)


def _listed(pack: Path) -> list[dict[str, Any]]:
    """Return the probes of a pack's index; every model that it names is there.

    Raises:
        StageError: the index is none, or models are missing.
    """
    index = read_json(pack / INDEX)
    listed = index.get("probes") if isinstance(index, dict) and index.get("schema") == SCHEMA else None
    if not isinstance(listed, list) or not all(map(_is_probe, listed)):
        raise StageError(f"{pack / INDEX}: not an index of probes", hint=HINT)
    if gone := [probe["model"] for probe in listed if not (pack / probe["model"]).is_file()]:
        raise all_at_once(f"{pack}: models of the index are missing:", gone, hint=HINT)
    return listed


def _is_probe(entry: Any) -> bool:
    """Tell whether an entry of the index has what is read of it."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "asks", "model")):
        return False
    names = entry.get("fixtures")
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _rows(probe: dict[str, Any], pack: Path, file: str, dump: Dump, model: DumpedModel, facts: str) -> list[Row]:
    inputs, wanted = read_fixture(pack / file)
    fixture = file.removesuffix(".npz").partition("--")[2]
    predicted = _predicted(pack / probe["model"], inputs, wanted, facts)
    if not model.imported:
        measured = {"": Answer(FAILS, f"import: {'; '.join(model.errors)[:200]}", {})}
    else:
        found = recorded_outputs(dump, model, fixture, fixture_sha256(inputs), wanted)
        measured = {}
        for one in found:
            why = "; ".join(f"{fault.reason}: {fault.detail}" for fault in one.faults)
            measured[one.backend] = Answer(FAILS, why[:200], {}) if why else _told(one.outputs, wanted)
    return [
        Row(probe["name"], fixture, backend, probe["asks"], str(predicted), str(answer), _agree(predicted, answer))
        for backend, answer in measured.items()
    ]


def _predicted(model: Path, inputs: Mapping[str, Array], wanted: Mapping[str, Array], facts: str) -> Answer:
    said = predict(model, inputs, facts)
    if said.verdict == "import fails":
        return Answer(FAILS, said.reason, {})
    if said.verdict != "predicted" or said.unpredicted:
        return Answer(UNKNOWN, said.reason or "; ".join(said.unpredicted.values()), {})
    return _told(said.outputs, wanted)


def _told(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> Answer:
    """Say how outputs stand to those of ONNX."""
    if missing := sorted(wanted.keys() - found.keys()):
        return Answer(FAILS, f"no output {', '.join(missing)}", {})
    why = [told for name, right in wanted.items() if (told := difference(found[name], right))]
    return Answer("otherwise" if why else AS_ONNX, "; ".join(why), found)


def difference(found: Array, right: Array) -> str:
    """Return how an array differs from the right one, beyond rounding; empty where it does not."""
    if found.shape != right.shape:
        return f"shape {list(found.shape)}, wanted {list(right.shape)}"
    mine, other = found.astype(np.float64), right.astype(np.float64)
    if (np.isnan(mine) != np.isnan(other)).any():
        return f"{int(np.isnan(mine).sum())} NaN, wanted {int(np.isnan(other).sum())}"
    with np.errstate(invalid="ignore"):
        apart = np.where(mine == other, 0.0, np.abs(mine - other))
    worst = float(np.nanmax(apart, initial=0.0))
    scale = float(np.max(np.abs(other), initial=1.0, where=np.isfinite(other)))
    return f"by {worst:.3g}" if worst > TOLERANCE * scale else ""


def _agree(predicted: Answer, measured: Answer) -> bool | None:
    if predicted.word == UNKNOWN:
        return None
    if FAILS in (predicted.word, measured.word):
        return predicted.word == measured.word
    return not any(difference(measured.outputs[name], array) for name, array in predicted.outputs.items())
