"""Findings about the model as a whole: opset, size, inputs and outputs, and how its nodes hang together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from converters.facts import Facts
from converters.finding import Finding
from converters.onnx_file import Skeleton, type_name
from converters.scan.graphs import names_read, sorted_order
from converters.scan.operators import SHOWN_NAME, label_of
from converters.scan.view import View

if TYPE_CHECKING:
    import onnx

WITHOUT_OPSET = 15  # what Sentis takes where no opset of the domain '' is given


def opset_of(model: onnx.ModelProto) -> int:
    """Return the opset as Sentis takes it: the last one of the domain '', 15 where there is none."""
    return next((entry.version for entry in reversed(model.opset_import) if entry.domain == ""), WITHOUT_OPSET)


def model_findings(skeleton: Skeleton, view: View, name: str, known: Facts) -> Iterator[Finding]:
    """Yield findings about a file's head, its inputs and outputs and its graph."""
    yield from _opset(skeleton.model, known)
    if skeleton.file_bytes > known["file_limit_bytes"]:
        yield known.finding("FILE.SIZE", name, f"{skeleton.file_bytes / 2**30:.2f} GiB")
    yield from _inputs(view, known)
    yield from graph_findings(view, known)


def _opset(model: onnx.ModelProto, known: Facts) -> Iterator[Finding]:
    low, high = known["opset_window"]
    found = [entry.version for entry in model.opset_import if entry.domain == ""]
    if not found:
        named = ", ".join(f"{entry.domain[:SHOWN_NAME]} {entry.version}" for entry in model.opset_import) or "none"
        yield known.finding("OPSET.DOMAIN", "opset_import", f"opsets given: {named}")
        return
    if len(found) > 1:
        yield known.finding("OPSET.SEVERAL", "opset_import", f"opsets {found}")
    if not low <= found[-1] <= high:
        window = f"opset {found[-1]}, Sentis {known.version} documents {low}–{high}"
        yield known.finding("OPSET.WINDOW", "opset_import", window)


def _inputs(view: View, known: Facts) -> Iterator[Finding]:
    names: set[str] = set()
    for value in view.graph.input:
        kind = value.type.WhichOneof("value")
        if value.name in view.initialisers:
            continue
        if kind != "tensor_type" or not value.type.tensor_type.HasField("shape"):
            yield known.finding("INPUT.NO_SHAPE", value.name[:SHOWN_NAME], kind or "no type")
            continue
        name = type_name(value.type.tensor_type.elem_type)
        if name not in known["input_types"]:
            what = f"no such type exists in Sentis: inputs of it {known['other_inputs']}"
            yield known.finding("INPUT.TYPE", value.name[:SHOWN_NAME], name, what=what)
        sizes = value.type.tensor_type.shape.dim
        if any(dim.dim_value < 0 for dim in sizes):
            yield known.finding("DIMS.NEGATIVE", value.name[:SHOWN_NAME], _shown(sizes))
        names |= {dim.dim_param for dim in sizes if dim.dim_param}
    if len(names) > known["dimension_names"]:
        yield known.finding("DIMS.NAMES", "inputs", f"{len(names)} names of dimensions")


def _shown(sizes: Iterable[Any]) -> str:
    return str([dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in sizes][:8])


def graph_findings(view: View, known: Facts) -> Iterator[Finding]:
    """Yield names that are made twice or never, circles, and outputs that nothing makes."""
    graph = view.graph
    given = {value.name for value in graph.input} | set(view.initialisers)
    given |= {tensor.values.name for tensor in graph.sparse_initializer}
    for name, count in Counter(value.name for value in graph.input).items():
        if count > 1:
            what = f"{count} inputs of one name: which of them is meant, nothing says; no ONNX model may"
            yield known.finding("GRAPH.DUPLICATE", name[:SHOWN_NAME], "", what=what)
    made: set[str] = set()
    for node in graph.node:
        for name in filter(None, node.output):
            if name in made or name in given:
                yield known.finding("GRAPH.DUPLICATE", name[:SHOWN_NAME], node.op_type)
            made.add(name)
    told: set[str] = set()
    for node in graph.node:
        for name in names_read(node):
            if name not in made and name not in given and name not in told:
                told.add(name)
                yield known.finding("GRAPH.UNDEFINED", label_of(node), f"{node.op_type} reads {name[:SHOWN_NAME]!r}")
    if sorted_order(graph) is None:
        yield known.finding("GRAPH.CYCLE", graph.name[:SHOWN_NAME] or "graph", "nodes wait for each other")
    for value in graph.output:
        if value.name not in made and value.name not in given:
            yield known.finding("GRAPH.OUTPUT", value.name[:SHOWN_NAME], "nothing makes it")


def shape_findings(view: View, known: Facts) -> Iterator[Finding]:
    """Yield tensors, declared or inferred, that have too many dimensions or elements."""
    for name, dims in view.dims.items():
        if len(dims) > known["max_rank"]:
            yield known.finding("TENSOR.RANK", name[:SHOWN_NAME], f"rank {len(dims)}")
        elif (count := math.prod(size for size in dims if size is not None)) > known["element_limit"]:
            yield known.finding("TENSOR.SIZE", name[:SHOWN_NAME], f"{count:.3g} elements")
