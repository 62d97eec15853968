"""The four causes that a miss at edge B has, in the order in which they are looked for (requirement 190).

Side files come first because they are the worst and the easiest to see; int64 comes last because it is mostly benign.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.triple.rows import Step

if TYPE_CHECKING:
    from converters.facts import Facts
    from converters.finding import Finding

MASK_OPERATORS = {"And", "Or", "Xor", "Not", "Where", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
MASK_RULES = {"CAST.TO_BOOL"}
INT_RULES = {
    "CAST.INT64",
    "CAST.NARROW_INT",
    "INT64.RANGE",
    "INT64.UNREAD",
    "INT64.WRAP",
    "POW.INT",
    "RANGE.BIG",
    "DOUBLE.RANGE",
}
ATTRIBUTE_PREDICATES = {"attribute", "old_softmax_axis", "opset_below", "opset_from"}
NODES_SHOWN = 3


@dataclass(frozen=True)
class Suspect:
    """Something that the scanner found or the emulator changed.

    Attributes:
        rule: its id.
        operator: of the node; empty where it is about none.
        node: the node, tensor or file.
        what: what Sentis does.
        passes: passes of `fix` that mend it.
        sure: whether it certainly happens; a possibility is told after certainties.
    """

    rule: str
    operator: str
    node: str
    what: str
    passes: tuple[str, ...] = ()
    sure: bool = True


@dataclass(frozen=True)
class Cause:
    """One of the four.

    Attributes:
        number: its place in the order.
        name: in words.
        covers: whether a rule of the facts is one of its.
    """

    number: str
    name: str
    covers: Callable[[Suspect, Facts], bool]


def _external(suspect: Suspect, known: Facts) -> bool:
    del known
    return suspect.rule.startswith("EXTERNAL.") or suspect.rule.endswith(".EXTERNAL")


def _mask(suspect: Suspect, known: Facts) -> bool:
    del known
    return suspect.rule in MASK_RULES or suspect.operator in MASK_OPERATORS


def _integer(suspect: Suspect, known: Facts) -> bool:
    del known
    return suspect.rule in INT_RULES


def _attribute(suspect: Suspect, known: Facts) -> bool:
    """Tell whether an attribute is at fault: a rule about attributes, or one that looks at one before it fires."""
    if _external(suspect, known) or _mask(suspect, known) or _integer(suspect, known):
        return False
    rule = known.rules.get(suspect.rule)
    if rule is None:
        return suspect.rule.startswith("ATTRIBUTE.")
    return rule.subject in ("attributes", "importer") or bool(ATTRIBUTE_PREDICATES & set(rule.when))


CAUSES = (
    Cause("2a", "external data", _external),
    Cause("2b", "dropped attribute", _attribute),
    Cause("2c", "mask or bool", _mask),
    Cause("2d", "int64 → int32", _integer),
)


def suspects(findings: Iterable[Finding], deviations: Iterable[Mapping[str, Any]]) -> list[Suspect]:
    """Return what may be at fault, from the scanner and from the emulator, each rule at each node once."""
    found = {}
    for one in findings:
        key = (one.id, one.node)
        found[key] = Suspect(one.id, one.operator.rpartition(":")[2], one.node, one.what, one.passes, one.blocking)
    for one in deviations:
        key = (one["rule"], one["node"])
        found.setdefault(key, Suspect(one["rule"], one["op_type"], one["node"], one["what"]))
    return sorted(found.values(), key=lambda suspect: not suspect.sure)


def cause_steps(suspected: Sequence[Suspect], known: Facts, onnx: Path) -> list[Step]:
    """Return one step per cause in order, and one for what belongs to none of them.

    A step that found nothing is done as well: it rules its cause out as far as the facts go.
    """
    left = list(suspected)
    steps = []
    for cause in CAUSES:
        mine = [suspect for suspect in left if cause.covers(suspect, known)]
        left = [suspect for suspect in left if suspect not in mine]
        steps.append(_step(cause.number, cause.name, mine, onnx))
    return steps + ([_step("2e", "anything else", left, onnx)] if left else [])


def _step(number: str, name: str, mine: Sequence[Suspect], onnx: Path) -> Step:
    if not mine:
        return Step(number, name, "nothing known")
    by_rule: dict[str, list[Suspect]] = {}
    for suspect in mine:
        by_rule.setdefault(suspect.rule, []).append(suspect)
    texts = []
    for rule, alike in by_rule.items():
        nodes = ", ".join(suspect.node for suspect in alike[:NODES_SHOWN])
        more = f" and {len(alike) - NODES_SHOWN} more" if len(alike) > NODES_SHOWN else ""
        doubt = "" if alike[0].sure else " (may happen)"
        texts.append(f"{rule}{doubt} at {nodes}{more}: {alike[0].what}")
    passes = dict.fromkeys(name for suspect in mine for name in suspect.passes)
    only = "".join(f" --only {name}" for name in passes)
    paths = (shlex.quote(str(path)) for path in (onnx, onnx.with_name(f"{onnx.stem}-fixed.onnx")))
    command = "mlx-sentis fix {} --out {}".format(*paths) + only
    return Step(number, name, "; ".join(texts), command if passes else "")
