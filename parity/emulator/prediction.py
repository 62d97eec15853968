"""What the emulator answers, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from weights_bridge.errors import counted

if TYPE_CHECKING:
    from weights_bridge.compare import Array

Verdict = Literal["predicted", "import fails", "not predicted"]


@dataclass(frozen=True)
class Deviation:
    """One place where Sentis computes something else than ONNX says.

    Attributes:
        node: the node, or the tensor where it is about no node.
        op_type: its operator; empty for a tensor.
        output: the tensor in which it shows first.
        rule: id of the rule (`docs/sentis-rules.md`), or of a form of the emulator (`docs/sentis-emulator.md`).
        what: what Sentis does instead.
        source: where that was read.
        confidence: `read in 2.6`, or `handed on from 2.4, not verified for 2.6`.
    """

    node: str
    op_type: str
    output: str
    rule: str
    what: str
    source: str
    confidence: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """Return it on one line."""
        return f"{self.rule} at {self.op_type} {self.node!r} ({self.output!r}): {self.what} [{self.confidence}]"


LAST_DIGITS = "its last digits may differ"


@dataclass(frozen=True)
class Rounding:
    """A difference of rounding: what Sentis computes in another order or form, and nothing that a gate would miss.

    Attributes:
        op: the operator, or the layer that stands for several nodes.
        computes: what Sentis computes.
        effect: what may be seen of it.
        nodes: operators of the ONNX nodes that became this one layer; empty for a node by itself.
    """

    op: str
    computes: str
    effect: str = LAST_DIGITS
    nodes: tuple[str, ...] = ()

    def sentence(self, places: int) -> str:
        """Return it for somebody who looks at the imported model in Unity, whose layers are not the file's nodes."""
        at = counted(places, "place")
        if not self.nodes:
            return f"{self.op} ({at}): Sentis computes {self.computes}; {self.effect}"
        of = f"{len(self.nodes)} ONNX nodes ({', '.join(self.nodes)})"
        return f"{self.op} ({at}): Sentis makes this one layer of {of} and computes {self.computes}; {self.effect}"


@dataclass
class Prediction:
    """What a version of Sentis would put out on its CPU backend.

    Attributes:
        version: of the package, `2.6`.
        verdict: `predicted`, `import fails` (a throw at `Schedule` included), or `not predicted`.
        reason: why not; empty where it is predicted.
        outputs: name to array, float32 or int32 as in Unity; those that are dropped or not predicted are missing.
        deviations: where and why other numbers come out, in the order of the graph.
        notes: differences of rounding, dropped outputs, what may happen on other inputs.
        unpredicted: output to the reason why it is missing.
    """

    version: str
    verdict: Verdict
    reason: str = ""
    outputs: dict[str, Array] = field(default_factory=dict)
    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unpredicted: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return everything but the arrays, of which type and shape are told."""
        arrays = {name: {"dtype": str(one.dtype), "shape": list(one.shape)} for name, one in self.outputs.items()}
        return asdict(self) | {"outputs": arrays, "deviations": [one.as_json() for one in self.deviations]}


class Throws(Exception):  # noqa: N818  (what Sentis does, not a fault of this program)
    """Sentis throws here: the import or the run fails."""


class Unknown(Exception):  # noqa: N818
    """What Sentis does here is not known, so nothing is predicted."""
