"""Scanning nodes: operators, domains, subgraphs, attributes, optional inputs, functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from converters.finding import Finding

if TYPE_CHECKING:
    import onnx

CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
STANDARD = ("", "ai.onnx")


def node_findings(model: onnx.ModelProto, known: dict[str, Any]) -> list[Finding]:
    """Return the findings about nodes, those in subgraphs and local functions included."""
    functions = {(function.domain, function.name) for function in model.functions}
    opset = next((entry.version for entry in reversed(model.opset_import) if entry.domain == ""), 15)
    found: list[Finding] = []
    for where, node in _nodes(model.graph.node, ""):
        label = where + (node.name or (node.output[0] if node.output else node.op_type))
        if (node.domain, node.op_type) in functions:
            what = f"{node.domain or 'ai.onnx'}::{node.op_type} is a function of this file; Sentis does not read them"
            found.append(Finding("FUNCTION.LOCAL", "error", label, what, "inline it (onnx.inliner)", "A"))
        elif node.op_type not in known["handled"]:
            found.append(_unhandled(node, label, known))
        else:
            found += _handled(node, label, opset, known)
        if node.op_type not in CONTROL_FLOW and any(a.HasField("g") or a.graphs for a in node.attribute):
            what = "a subgraph attribute, which Sentis never looks into"
            found.append(Finding("SUBGRAPH.IGNORED", "error", label, what, "export without it", "B"))
    return found


def _nodes(nodes: Any, where: str) -> Iterator[tuple[str, onnx.NodeProto]]:
    for node in nodes:
        yield where, node
        inner = where + (node.name or node.op_type) + " / "
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g.node, inner)
            for graph in attribute.graphs:
                yield from _nodes(graph.node, inner)


def _unhandled(node: onnx.NodeProto, label: str, known: dict[str, Any]) -> Finding:
    domain = "" if node.domain in STANDARD else node.domain
    rows = [row for row in known["not_handled"] if row["op"] == node.op_type]
    row = next((row for row in rows if row["domain"] == domain), rows[0] if rows else None)
    name = f"{domain}::{node.op_type}" if domain else node.op_type
    kind = row["kind"] if row else ("contrib" if domain else "unknown")
    ids = {"quantised": "OPERATOR.QUANTISED", "control flow": "CONTROL_FLOW", "contrib": "OPERATOR.CONTRIB"}
    what = f"{name}: Sentis {known['version']} does not import it"
    mend = row["mend"] if row else "write it with operators that Sentis imports"
    taxonomy = "B" if kind == "control flow" else "A"
    return Finding(ids.get(kind, "OPERATOR.UNSUPPORTED"), "error", label, what, mend, taxonomy)


def _handled(node: onnx.NodeProto, label: str, opset: int, known: dict[str, Any]) -> Iterator[Finding]:
    if node.domain not in STANDARD:
        what = f"{node.domain}::{node.op_type}: Sentis reads the name only and imports ONNX {node.op_type}"
        yield Finding("OPERATOR.DOMAIN_IGNORED", "deviation", label, what, "write it as the standard operator", "A")
    if node.op_type in known["broken_operators"]:
        reason, _, mend = known["broken_operators"][node.op_type].partition(": ")
        yield Finding("OPERATOR.BROKEN", "deviation", label, f"{node.op_type} {reason}", mend, "C")
    values = {attribute.name: attribute for attribute in node.attribute}
    for rule in known["attribute_rules"]:
        if rule["op"] == node.op_type and opset < rule.get("before_opset", 10**6):
            value = _value(values[rule["attribute"]]) if rule["attribute"] in values else rule.get("default")
            if value is not None and _fires(rule["test"], value):
                what = f"{node.op_type}.{rule['attribute']} = {value}: {rule['what']}"
                yield Finding(rule["id"], rule["severity"], label, what, rule["mend"], "C")
    given = [name for name in node.input if name]
    for rule in known["input_rules"]:
        if rule["op"] == node.op_type and (len(given) < rule["least"]) and _counts(rule, node, opset):
            what = f"{node.op_type} with {len(given)} of {rule['least']} inputs: {rule['what']}"
            yield Finding(rule["id"], rule["severity"], label, what, rule["mend"], "C")


def _counts(rule: dict[str, Any], node: onnx.NodeProto, opset: int) -> bool:
    """Resize counts positions (an empty roi is one) and had two inputs before opset 11."""
    return rule["op"] != "Resize" or (opset >= 11 and len(node.input) < rule["least"])


def _value(attribute: onnx.AttributeProto) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _fires(test: dict[str, Any], value: Any) -> bool:
    if "is" in test:
        return value == test["is"]
    if "not" in test:
        return value != test["not"]
    if "not_all" in test:
        return any(item != test["not_all"] for item in value)
    return True
