"""Types and shapes of a graph as Sentis sees it, from onnx's own inference; the weights are left out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.onnx_file import is_endless
from converters.scan.graphs import nodes_within, sorted_order
from converters.scan.schemas import is_cut_short

if TYPE_CHECKING:
    import onnx

    from converters.facts import Facts

SMALL_BYTES = 8192  # initialisers up to here go into inference with their data
CUT_SHORT = "cut.short"  # a domain nobody knows: onnx's inference dies of some nodes that lack inputs
OLDEST_INFERRED = 7  # older operators have no inference of their own


def inferred(model: onnx.ModelProto, known: Facts, opset: int) -> onnx.ModelProto:
    """Return a copy with types and shapes; the plain copy where inference gives up on the model as a whole."""
    import onnx

    copy = light_copy(model)
    newest = onnx.defs.onnx_opset_version()
    version = min(max(opset, OLDEST_INFERRED), newest)
    copy.opset_import.add(domain="", version=version)
    domains = {node.domain for node in nodes_within(copy.graph)} - {""} | {CUT_SHORT}
    copy.opset_import.extend(onnx.OperatorSetIdProto(domain=domain, version=1) for domain in sorted(domains))
    for node in nodes_within(copy.graph):
        if node.op_type in known.operators or node.domain == "ai.onnx":
            node.domain = ""
        if is_cut_short(node, version) or is_endless(node):
            node.domain = CUT_SHORT
    order = sorted_order(copy.graph)
    if order is not None and order != sorted(order):
        nodes = [onnx.NodeProto.FromString(copy.graph.node[index].SerializeToString()) for index in order]
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
    try:
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError, UnicodeDecodeError, MemoryError):
        return copy


def light_copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model's graph in which large initialisers have a type and dims and no data."""
    import onnx

    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    graph = copy.graph
    for described, value in model.graph.ListFields():
        if described.name == "initializer":
            for tensor in value:
                if tensor.ByteSize() > SMALL_BYTES:
                    graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
                else:
                    graph.initializer.add().CopyFrom(tensor)
        elif described.name == "name":
            graph.name = value
        elif hasattr(value, "MergeFrom"):
            getattr(graph, described.name).MergeFrom(value)
    return copy
