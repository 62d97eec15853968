"""What is in a graph: sizes, inputs and outputs, operators, the largest weights. No weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import onnx_file
from converters.scan.graphs import nodes_within
from converters.surgery.files import operators_of
from weights_bridge.errors import one_line

if TYPE_CHECKING:
    import onnx

LARGEST = 5


def info(path: Path) -> dict[str, Any]:
    """Return what a file holds.

    Returns:
        `{"model", "bytes", "ir_version", "producer", "opsets", "nodes", "nodes_in_bodies", "operators", "functions",
        "inputs", "outputs", "initialisers": {"count", "bytes", "by_type", "outside", "largest"}, "metadata"}`.

    Raises:
        StageError: unreadable.
    """
    skeleton = onnx_file.read_skeleton(path)
    model, graph = skeleton.model, skeleton.model.graph
    given = {tensor.name for tensor in graph.initializer}
    within = sum(1 for _ in nodes_within(graph))
    return {
        "model": str(path),
        "bytes": skeleton.file_bytes,
        "ir_version": model.ir_version,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "nodes": len(graph.node),
        "nodes_in_bodies": within - len(graph.node),
        "operators": operators_of(graph),
        "functions": [f"{function.domain}::{function.name}" for function in model.functions],
        "inputs": [value_row(value) for value in graph.input if value.name not in given],
        "outputs": [value_row(value) for value in graph.output],
        "initialisers": _initialisers(graph),
        "metadata": len(model.metadata_props) + sum(len(node.metadata_props) for node in graph.node),
    }


def value_row(value: onnx.ValueInfoProto) -> dict[str, Any]:
    """Return name, type and sizes of an input or output; a size is a number, a name or None."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "type": kind or "not given", "shape": None}
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return {"name": value.name, "type": onnx_file.type_name(tensor.elem_type), "shape": shape}


def _initialisers(graph: onnx.GraphProto) -> dict[str, Any]:
    by_type: dict[str, int] = {}
    rows = []
    for tensor in graph.initializer:
        name, size = onnx_file.type_name(tensor.data_type), max(0, onnx_file.byte_size(tensor))
        by_type[name] = by_type.get(name, 0) + size
        rows.append({"name": tensor.name, "type": name, "shape": list(tensor.dims), "bytes": size})
    outside = sum(tensor.data_location == tensor.EXTERNAL for tensor in graph.initializer)
    largest = sorted(rows, key=lambda row: -row["bytes"])[:LARGEST]
    total = sum(by_type.values())
    return {"count": len(rows), "bytes": total, "by_type": by_type, "outside": outside, "largest": largest}


def text_of(facts: dict[str, Any]) -> str:
    """Return the facts for a terminal."""
    held = facts["initialisers"]
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    outside = f", {held['outside']} in side files" if held["outside"] else ""
    bodies = f" and {facts['nodes_in_bodies']} in bodies" if facts["nodes_in_bodies"] else ""
    functions = f", {len(facts['functions'])} functions" if facts["functions"] else ""
    head = f"{facts['bytes'] / 1e6:.1f} MB, opset {opsets}, IR {facts['ir_version']}"
    lines = [
        f"{facts['model']}: {head}, {facts['producer'] or 'no producer named'}",
        f"{facts['nodes']} nodes{bodies}{functions}; {held['count']} weights, {held['bytes'] / 1e6:.1f} MB{outside}",
    ]
    for side in ("inputs", "outputs"):
        lines += [f"{side[:-1]:<7} {row['name']}  {row['type']} {_shape(row['shape'])}" for row in facts[side]]
    lines.append("operators: " + ", ".join(f"{op} {count}" for op, count in facts["operators"].items()))
    lines += [f"weight  {row['name']}  {row['type']} {_shape(row['shape'])}" for row in held["largest"]]
    return "\n".join(map(one_line, lines))


def _shape(shape: list[Any] | None) -> str:
    return "of any rank" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
