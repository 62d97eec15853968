"""What the scanner's findings mean for a prediction: the import fails, nothing is known, or other numbers come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from converters.facts import Facts
from converters.finding import IMPORTED_ALL_THE_SAME, Finding
from parity.emulator.node import origin
from parity.emulator.prediction import Deviation

if TYPE_CHECKING:
    import onnx

UNKNOWN = {  # errors that say that results cannot be predicted, not that the import fails
    "OPSET.WINDOW",
    "SUBGRAPH.IGNORED",
}
DECIDED_BY_NUMBERS = {  # the form of the operator tells whether they happened
    "TOPK.SMALLEST_NEGATIVE",
    "ROIALIGN.MAX_NEG",
    "POW.INT",
}


def fatal(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return verdict and reason that errors among the findings decide; empty where none does."""
    errors = [one for one in findings if one.severity == "error" and one.id not in IMPORTED_ALL_THE_SAME]
    fails = [one for one in errors if one.id not in UNKNOWN]
    chosen = fails or errors
    if not chosen:
        return "", ""
    more = f" (and {len(chosen) - 1} more)" if len(chosen) > 1 else ""
    return (
        "import fails" if fails else "not predicted"
    ), f"{chosen[0].id} at {chosen[0].node!r}: {chosen[0].what}{more}"


def as_deviations(findings: Sequence[Finding], graph: onnx.GraphProto, known: Facts) -> list[Deviation]:
    """Return the findings that are sure to change numbers, in the order of the graph."""
    from converters.scan.operators import label_of

    order = {label_of(node): (at, node) for at, node in reversed(list(enumerate(graph.node)))}
    found = []
    for one in findings:
        if one.severity != "deviation" or one.id in DECIDED_BY_NUMBERS:
            continue
        at, node = order.get(one.node, (-1, None))
        op, output = (node.op_type, node.output[0] if node.output else "") if node is not None else ("", one.node)
        came = origin(known, known.rules[one.id].subject, one.verified)
        found.append((at, Deviation(one.node, op, output, one.id, one.what, *came)))
    return [deviation for _, deviation in sorted(found, key=lambda pair: pair[0])]
