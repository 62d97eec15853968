"""One finding of the scanner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEVERITIES = ("error", "deviation", "warning", "note")
IMPORTED_ALL_THE_SAME = {
    "EXTERNAL.SHORT",  # what is missing is read as zeros
    "GRAPH.OUTPUT",  # an output that nothing makes is dropped with a warning
}
TAXONOMY = {
    "A": "an operator, or a form of it, that Sentis cannot run",
    "B": "control flow and functions",
    "C": "imports, and computes something else",
    "D": "weights, side files and the file itself",
    "E": "baked post-processing",
    "F": "baked pre-processing",
    "G": "inputs: what the caller feeds",
}


@dataclass(frozen=True)
class Finding:
    """What Sentis does with one place of a model, and what mends it.

    Attributes:
        id: of a rule: `OPERATOR.UNSUPPORTED`, `EXTERNAL.OFFSET`, …
        severity: `error` (import or run fails), `deviation` (runs, other numbers, no message), `warning` (may happen,
            or on one backend), `note` (costs time or a last digit).
        node: the node, tensor or file it is about.
        what: found, and what Sentis does with it.
        mend: the exporter flag or rewrite that mends it.
        taxonomy: a key of `TAXONOMY`.
        verified: whether it was read in the version that is predicted for; otherwise it is handed on from an earlier.
        passes: names of the passes of `fix` that mend it.
        file: the file it was found in, seen from the scanned folder.
        operator: `Name` or `domain::Name` of the node it is about; empty where it is about no node.
    """

    id: str
    severity: str
    node: str
    what: str
    mend: str
    taxonomy: str
    verified: bool = True
    passes: tuple[str, ...] = ()
    file: str = ""
    operator: str = ""

    @property
    def blocking(self) -> bool:
        """Whether the model would fail or silently compute something else."""
        return self.severity in ("error", "deviation")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """Return it on one line, for messages."""
        return f"{self.severity} {self.id} at {self.node!r}: {self.what}" + (
            f"; mend: {self.mend}" if self.mend else ""
        )
