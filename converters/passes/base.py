"""What a pass is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx


@dataclass
class Outcome:
    """What a pass did.

    Attributes:
        changed: how many places.
        left: place to the reason why it was left as it was.
    """

    changed: int = 0
    left: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"changed": self.changed, "left": self.left}


@dataclass(frozen=True)
class Pass:
    """A named rewrite of a model in place.

    Attributes:
        name: for `--only`.
        why: the rule of Sentis behind it.
        findings: ids of the scanner that it mends.
        run: (model, folder of the file) to outcome.
        by_design: why its numbers need not be proven equal; empty when they are proven.
    """

    name: str
    why: str
    findings: tuple[str, ...]
    run: Callable[[onnx.ModelProto, Path], Outcome]
    by_design: str = ""
