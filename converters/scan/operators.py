"""Findings about nodes: operators that are not handled, domains, bodies, and the rules of those that are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from converters.facts import Facts
from converters.finding import Finding
from converters.scan import checks as _registered  # noqa: F401  (registers the checks that rules name)
from converters.scan.attributes import attribute_findings
from converters.scan.graphs import graphs_in
from converters.scan.predicates import holds
from converters.scan.schemas import lacks_inputs
from converters.scan.view import Place, View, inner_views

if TYPE_CHECKING:
    import onnx

CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
STANDARD = ("", "ai.onnx")
SHOWN_NAME = 200  # characters of a name; a damaged file may hold megabytes


def node_findings(model: onnx.ModelProto, view: View, opset: int, known: Facts) -> Iterator[Finding]:
    """Yield the findings about nodes, those in bodies of control flow included."""
    functions = {(function.domain, function.name) for function in model.functions}
    yield from _graph_findings(view, "", functions, opset, known)


def _graph_findings(
    view: View, where: str, functions: set[tuple[str, str]], opset: int, known: Facts
) -> Iterator[Finding]:
    for node in view.graph.node:
        label = where + label_of(node)
        operator = full_name(node)
        for finding in _node_findings(Place(node, view, opset, known), label, functions):
            yield replace(finding, operator=operator)
        inner = where + (node.name or node.op_type)[:SHOWN_NAME] + " / "
        if node.op_type not in CONTROL_FLOW and any(True for a in node.attribute for _ in graphs_in(a)):
            yield known.finding("SUBGRAPH.IGNORED", label, node.op_type)
        for body in inner_views(view, node):
            yield from _graph_findings(body, inner, functions, opset, known)


def _node_findings(place: Place, label: str, functions: set[tuple[str, str]]) -> Iterator[Finding]:
    node, known = place.node, place.known
    if (node.domain, node.op_type) in functions:
        yield known.finding("FUNCTION.LOCAL", label, full_name(node))
    elif node.op_type not in known.operators:
        yield _unhandled(node, label, known)
    else:
        yield from _handled(place, label)


def label_of(node: onnx.NodeProto) -> str:
    """Return what a node is called: its name, its first output, or its operator."""
    return (node.name or next((name for name in node.output if name), "") or node.op_type)[:SHOWN_NAME]


def full_name(node: onnx.NodeProto) -> str:
    """Return `domain::Name` of a node's operator, the name alone for operators of ONNX itself."""
    domain = "" if node.domain in STANDARD else node.domain
    return (f"{domain}::{node.op_type}" if domain else node.op_type)[:SHOWN_NAME]


def _unhandled(node: onnx.NodeProto, label: str, known: Facts) -> Finding:
    domain = "" if node.domain in STANDARD else node.domain
    row = known.not_handled.get((domain, node.op_type))
    named = [group for (_, op), group in known.not_handled.items() if op == node.op_type]
    row = row or (named[0] if named else None)
    kind = row["kind"] if row else ("contrib" if domain else "standard")
    ids = {"quantised": "OPERATOR.QUANTISED", "control flow": "CONTROL_FLOW", "contrib": "OPERATOR.CONTRIB"}
    if domain and kind == "standard":
        kind = "contrib"
    return known.finding(ids.get(kind, "OPERATOR.UNSUPPORTED"), label, full_name(node), mend=row["mend"] if row else "")


def _handled(place: Place, label: str) -> Iterator[Finding]:
    node, known = place.node, place.known
    if node.domain not in STANDARD:
        yield known.finding("OPERATOR.DOMAIN_IGNORED", label, full_name(node))
    ruled = False
    for rule in known.rules_of.get(node.op_type, ()):
        if found := holds(rule.when, place):
            ruled = ruled or rule.severity == "error"
            evidence = f"{node.op_type}, {found.evidence}" if found.evidence else node.op_type
            yield known.finding(rule.id, label, evidence, sure=found.sure)
    if not ruled and lacks_inputs(node, place.opset):
        given = f"{len([name for name in node.input if name])} inputs, {len(node.output)} outputs given"
        yield known.finding("OPERATOR.ENDS", label, f"{node.op_type}, {given}")
    yield from attribute_findings(place, label)
    yield from _kinds_and_ranks(place, label)


def _kinds_and_ranks(place: Place, label: str) -> Iterator[Finding]:
    """Yield inputs of a kind or rank that the operator's row excludes, where no rule of its own says so."""
    node, known = place.node, place.known
    row: dict[str, Any] = known.operators[node.op_type]
    kind, kinds = place.kind(0), row["kinds"]
    ruled = any(rule.id.endswith(".INT_INPUT") for rule in known.rules_of.get(node.op_type, ()))
    sizes_only = 0 in row.get("cpu_inputs", ()) or node.op_type.endswith("Like")  # kinds are those of the output
    if kind and kind not in kinds and not ruled and not sizes_only:
        yield known.finding("OPERATOR.KIND", label, f"{node.op_type}, input 0 is {kind}, wanted {' or '.join(kinds)}")
    for position, ranks in row.get("ranks", {}).items():
        rank = place.rank(int(position))
        if rank is not None and rank not in ranks and rank <= known["max_rank"]:
            wanted = ", ".join(map(str, ranks)) if len(ranks) < 5 else f"{ranks[0]} or more"
            yield known.finding(
                "OPERATOR.RANK", label, f"{node.op_type}, input {position} of rank {rank}, wanted {wanted}"
            )
