"""What Sentis answers to a fixture: measured in Unity, or predicted by the emulator; never one for the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from parity.runners.dump import Dump, DumpedModel
from parity.runners.recorded import model_of, recorded_outputs, version_fault
from weights_bridge.compare import Array, GateResult
from weights_bridge.files import sha256_of
from weights_bridge.sentis_dump import fixture_sha256
from weights_bridge.sentis_version import minor_version

if TYPE_CHECKING:
    from parity.emulator import Deviation
    from parity.emulator.emulation import Emulation

NOT_PREDICTED = "not predicted"


@dataclass(frozen=True)
class Origin:
    """Where an answer comes from.

    Attributes:
        kind: `measured` or `predicted`.
        version: of the package; measured ones in full (`2.6.0`), predicted ones as asked (`2.6`).
        backend: `CPU` or `GPUCompute` where it was measured; empty where it could not be.
        date: day of the measurement.
    """

    kind: Literal["measured", "predicted"]
    version: str
    backend: str = ""
    date: str = ""

    def __str__(self) -> str:
        if self.kind == "predicted":
            return f"predicted ({self.version})"
        return f"measured ({self.version}, {self.backend or 'no backend'}, {self.date})"


@dataclass(frozen=True)
class Answer:
    """Sentis' outputs for one fixture.

    Attributes:
        origin: measured or predicted.
        outputs: by name; float32 and int32 where measured.
        faults: why there is nothing, or not everything, to compare.
        deviations: what the emulator changed and why; empty where it was measured.
        notes: what the emulator remarks.
        milliseconds: per repetition, where it was measured.
    """

    origin: Origin
    outputs: Mapping[str, Array] = field(default_factory=dict)
    faults: Sequence[GateResult] = ()
    deviations: Sequence[Deviation] = ()
    notes: Sequence[str] = ()
    milliseconds: tuple[float, ...] = ()


class Measured:
    """Answers from a dump.

    Args:
        dump: what the harness wrote.
        model: the graph that was to be run.
        version: the package version that was asked for.
        sha256: of the graph, where it is known already.
    """

    def __init__(self, dump: Dump, model: Path, version: str, sha256: str | None = None) -> None:
        self.dump = dump
        self.model = model_of(dump, sha256 or sha256_of(model), model.name)
        self.fault = version_fault(dump, version)

    def answers(self, name: str, inputs: Mapping[str, Array], wanted: Sequence[str]) -> list[Answer]:
        """Return one answer per backend, or one that says why there is none.

        A dump of another version is not compared: its numbers would stand under the wrong name.
        """
        origin = Origin("measured", self.dump.version, date=self.dump.date)
        if faults := [fault for fault in (self.fault, self.model) if isinstance(fault, GateResult)]:
            return [Answer(origin, faults=faults)]
        assert isinstance(self.model, DumpedModel)
        found = recorded_outputs(self.dump, self.model, name, fixture_sha256(inputs), wanted)
        return [
            Answer(
                Origin("measured", self.dump.version, one.backend, self.dump.date),
                one.outputs,
                one.faults,
                notes=[f"Unity said at import: {text}" for text in self.model.warnings],
                milliseconds=one.milliseconds,
            )
            for one in found
        ]

    def unknown_fixtures(self, known: Mapping[str, str]) -> list[GateResult]:
        """Return a failed result per fixture of the dump that nobody asked for.

        Args:
            known: hash of a fixture's inputs to its name.
        """
        if self.fault is not None or not isinstance(self.model, DumpedModel):
            return []
        extra = {run.fixture for run in self.model.runs if run.fixture_sha256 not in known}
        named = set(known.values())
        detail = "the dump has it, these fixtures do not"
        return [GateResult(name, False, "extra", where=name, detail=detail) for name in sorted(extra - named)]


class Predicted:
    """Answers of the emulator, which imports a graph once.

    Args:
        model: the graph.
        version: of the package.

    Raises:
        StageError: the graph cannot be read.
    """

    def __init__(self, model: Path, version: str) -> None:
        from converters.facts import unknown_version, versions

        version = minor_version(version)
        self.name, self.origin = model.name, Origin("predicted", version)
        self.emulation: Emulation | None = None
        unknown = unknown_version(version)
        self.why_not = f"{unknown.message}; {unknown.hint}"
        if version in versions():
            from parity.emulator import emulation

            self.emulation = emulation.Emulation(model, version)

    def answer(self, inputs: Mapping[str, Array]) -> Answer:
        """Return what is predicted; what is not known is a fault of its own, never a pass."""
        if self.emulation is None:
            return Answer(self.origin, faults=[self._fault(NOT_PREDICTED, self.why_not)])
        found = self.emulation.predict(inputs)
        if found.verdict == "predicted":
            faults = [_unpredicted(name, reason) for name, reason in found.unpredicted.items()]
            return Answer(self.origin, found.outputs, faults, deviations=found.deviations, notes=found.notes)
        fault = self._fault(found.verdict, found.reason)
        return Answer(self.origin, faults=[fault], deviations=found.deviations, notes=found.notes)

    def _fault(self, reason: str, detail: str) -> GateResult:
        return GateResult("model", False, reason, where=self.name, detail=detail)


def _unpredicted(name: str, reason: str) -> GateResult:
    """Return why one output is missing: Sentis drops it, or it is not known what comes out."""
    return GateResult(name, False, "missing" if "dropped" in reason else NOT_PREDICTED, where=name, detail=reason)
