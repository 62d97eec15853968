"""One finding of the scanner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEVERITIES = ("error", "deviation", "warning")


@dataclass(frozen=True)
class Finding:
    """What Sentis does with one place of a model, and what mends it.

    Attributes:
        id: `OPERATOR.UNSUPPORTED`, `EXTERNAL.OFFSET`, …
        severity: `error` (import or run fails), `deviation` (runs, other numbers, no message), `warning`.
        node: the node, tensor or file it is about.
        what: found, and what Sentis does with it.
        mend: the pass, exporter flag or rewrite that mends it.
        taxonomy: A operator, B control flow, C attribute dropped, D external data, empty for the others.
    """

    id: str
    severity: str
    node: str
    what: str
    mend: str
    taxonomy: str = ""

    @property
    def blocking(self) -> bool:
        """Whether the model would fail or silently compute something else."""
        return self.severity in ("error", "deviation")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
