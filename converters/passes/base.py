"""What a pass is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.facts import Facts, facts

if TYPE_CHECKING:
    import onnx

    from converters.scan.view import View

OPERATOR_FINDINGS = ("OPERATOR.UNSUPPORTED", "OPERATOR.CONTRIB", "OPERATOR.QUANTISED", "OPERATOR.DOMAIN_IGNORED")
BY_OPERATOR = (*OPERATOR_FINDINGS, "CONTROL_FLOW", "ATTRIBUTE.IGNORED")  # an operator's name decides who mends these
LEAST_GROWTH = 1 << 20  # bytes that a pass may always add


@dataclass
class Context:
    """What a pass may know besides the model.

    Attributes:
        folder: of the model's file, where its side files lie.
        name: of that file.
        sentis: the version that is mended for.
        growth_bytes: bytes that all passes together may still add as constants.
        side: the side file that weights may be written to; None where they may not.
        most_places: places that a pass may still change; None for all.
    """

    folder: Path = field(default_factory=Path)
    sentis: str = "2.6"
    growth_bytes: int = LEAST_GROWTH
    side: Path | None = None
    most_places: int | None = None
    name: str = "model.onnx"
    _view: View | None = None

    @property
    def file(self) -> Path:
        return self.folder / self.name

    @property
    def known(self) -> Facts:
        return facts(self.sentis)

    def view(self, model: onnx.ModelProto) -> View:
        """Return what is known about a model's graph; kept until `forget`."""
        from converters.scan.model import opset_of
        from converters.scan.view import view_of

        if self._view is None or self._view.graph is not model.graph:
            self._view = view_of(model, self.known, opset_of(model))
        return self._view

    def forget(self) -> None:
        """Drop the view: the model was changed."""
        self._view = None

    def room(self) -> bool:
        """Tell whether one more place may be changed."""
        return self.most_places is None or self.most_places > 0

    def spend(self, constants: int) -> None:
        """Book one changed place and the bytes of its constants."""
        self.growth_bytes -= constants
        if self.most_places is not None:
            self.most_places -= 1


@dataclass
class Outcome:
    """What a pass did.

    Attributes:
        changed: how many places.
        left: place to the reason why it was left as it was.
        places: the changed places, in order.
    """

    changed: int = 0
    left: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"changed": self.changed, "left": self.left}


@dataclass(frozen=True)
class Pass:
    """A named rewrite of a model in place.

    Attributes:
        name: for `--only`.
        why: the rule of Sentis behind it.
        findings: ids of the scanner that it mends.
        run: (model, context) to outcome; a second run changes nothing more.
        by_design: why its numbers change; empty when they must stay equal.
        operators: `domain::Name` of what it mends where a finding is about an operator as such.
        on_request: whether it runs only when it is named: Sentis does not need it.
        grows: why it may add more than the growth budget; empty when it may not.
        undone_as: layers that Sentis' optimiser may not make of what the pass wrote.
    """

    name: str
    why: str
    findings: tuple[str, ...]
    run: Callable[[onnx.ModelProto, Context], Outcome]
    by_design: str = ""
    operators: tuple[str, ...] = ()
    on_request: bool = False
    grows: str = ""
    undone_as: tuple[str, ...] = ()

    def mends(self, finding_id: str, operator: str) -> bool:
        """Tell whether a finding of the scanner is this pass's."""
        if finding_id not in self.findings:
            return False
        return finding_id not in BY_OPERATOR or operator in self.operators
