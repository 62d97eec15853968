"""The rows of the table: one edge on one fixture, its tensors, its verdict, and where Sentis' side comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from parity.triple.answers import NOT_PREDICTED
from weights_bridge.compare import GateReport, GateResult

EdgeName = Literal["A", "B", "A∘B"]
NO_SENTIS = "not part of it"


@dataclass(frozen=True)
class Edge:
    """An edge and what a miss there means.

    Attributes:
        name: `A`, `B` or `A∘B`.
        sides: which two are compared, the right one first.
        isolates: what is at fault when this one misses alone.
    """

    name: EdgeName
    sides: str
    isolates: str


EDGES: dict[EdgeName, Edge] = {
    "A": Edge("A", "original ↔ ONNX Runtime", "the export: dropped operator, approximation, default, baked pre/post"),
    "B": Edge("B", "ONNX Runtime ↔ Sentis", "the import: side file, dropped attribute, mask or bool, int64"),
    "A∘B": Edge("A∘B", "original ↔ Sentis", "nothing alone: the whole way, which the game gets"),
}


@dataclass(frozen=True)
class Row:
    """One edge on one fixture.

    Attributes:
        edge: its name.
        fixture: the fixture's name.
        sentis: `measured (…)`, `predicted (…)`, or that Sentis has no part in this edge; never empty.
        budget_db: what every float output must reach.
        results: one per output (and optimisation level), or per reason why there is nothing to compare.
    """

    edge: EdgeName
    fixture: str
    sentis: str
    budget_db: float
    results: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        return bool(self.results) and all(result.passed for result in self.results)

    @property
    def verdict(self) -> str:
        """`pass`, `FAIL`, or `not predicted`, which is neither."""
        if self.passed:
            return "pass"
        unknown = [result for result in self.results if not result.passed]
        return NOT_PREDICTED if unknown and all(r.reason == NOT_PREDICTED for r in unknown) else "FAIL"

    @property
    def worst(self) -> GateResult:
        """The first failed result, else the one of lowest dB, else the first."""
        failed = [result for result in self.results if not result.passed]
        if failed:
            return min(failed, key=lambda r: (r.psnr_db is None, r.psnr_db or 0.0)) if _all_low(failed) else failed[0]
        return min(self.results, key=lambda r: float("inf") if r.psnr_db is None else r.psnr_db)

    @property
    def max_abs(self) -> float | None:
        """The largest absolute difference over all outputs; None where one of them could not be compared."""
        if any(result.max_abs is None and not result.passed for result in self.results):
            return None
        return max((r.max_abs for r in self.results if r.max_abs is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        edge = EDGES[self.edge]
        worst = self.worst
        return {
            "edge": self.edge,
            "sides": edge.sides,
            "fixture": self.fixture,
            "sentis": self.sentis,
            "verdict": self.verdict,
            "budget_db": self.budget_db,
            "worst": worst.tensor,
            "psnr_db": worst.psnr_db,
            "max_abs": self.max_abs,
            "reason": worst.reason,
            "detail": worst.detail,
            "isolates": edge.isolates,
            "results": [result.as_json() for result in self.results],
        }


def _all_low(failed: Iterable[GateResult]) -> bool:
    """Tell whether all that failed only fell below the budget: then the lowest is the one to show."""
    return all(result.reason == "below budget" for result in failed)


@dataclass(frozen=True)
class Disagreement:
    """A place where a measurement in Unity and the emulator's prediction part: a finding about the emulator.

    Attributes:
        kind: `numbers`, `verdict` or `import`.
        fixture: on which one.
        tensor: the output; empty where it is about all.
        measured: what Unity gave.
        predicted: what the emulator gave.
        psnr_db: prediction against measurement.
    """

    kind: str
    fixture: str
    tensor: str
    measured: str
    predicted: str
    psnr_db: float | None = None

    def __str__(self) -> str:
        level = "" if self.psnr_db is None else f" ({self.psnr_db:.1f} dB apart)"
        place = f"{self.fixture} / {self.tensor}" if self.tensor else self.fixture
        return f"emulator, {self.kind}: {place}: measured {self.measured}, predicted {self.predicted}{level}"


@dataclass(frozen=True)
class Step:
    """One step of finding where a miss begins, in the order of the source documents.

    Attributes:
        number: its place in the order.
        what: what it decides.
        found: what was found, where it was done here; empty where it is for the user to do.
        command: how it is done or gone on with; empty where there is nothing to call.
    """

    number: str
    what: str
    found: str = ""
    command: str = ""


@dataclass
class Triple:
    """The table and what belongs to it.

    Attributes:
        rows: one per edge, fixture and origin.
        faults: failed results that belong to no row (a fixture that only the dump has).
        disagreements: where emulator and measurement part.
        compared: how many outputs of the emulator were held against measured ones; None without a dump.
        steps: where a miss begins; empty when every edge holds.
        facts: versions, budgets with provenance, notes.
    """

    rows: list[Row] = field(default_factory=list)
    faults: list[GateResult] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    compared: int | None = None
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.rows) and not self.faults and all(row.passed for row in self.rows)

    def of(self, edge: EdgeName) -> list[Row]:
        return [row for row in self.rows if row.edge == edge]

    def reports(self) -> list[GateReport]:
        """Return one report per edge, as other gates have them; names carry fixture and origin."""
        reports = []
        for name in EDGES:
            results = [
                replace(result, tensor=f"{row.fixture} / {row.sentis} / {result.tensor}")
                for row in self.of(name)
                for result in row.results
            ]
            if results:
                reports.append(GateReport(name.lower(), results))
        return reports + ([GateReport("dump", list(self.faults))] if self.faults else [])

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "rows": [row.as_json() for row in self.rows],
            "faults": [fault.as_json() for fault in self.faults],
            "emulator": {"compared": self.compared, "findings": [asdict(one) for one in self.disagreements]},
            "steps": [asdict(step) for step in self.steps],
            "facts": self.facts,
        }
