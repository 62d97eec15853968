"""Taking a part of a graph: between named tensors, or everything in front of baked post-processing.

The part is made with onnx-graphsurgeon: inputs and outputs are set, what leads to no output goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import onnx_file
from converters.scan.graphs import names_read
from converters.surgery.files import proof_of_part, read_whole, require_tensors, summary, write_whole
from weights_bridge.compare import Array
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

TypeAndSizes = tuple[Any, list[int | str | None] | None]
POST_PROCESSING = (
    "NonMaxSuppression", "EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT", "EfficientNMSX_TRT",
    "TRTBatchedNMS", "TRT_NonMaxSuppression",
)  # fmt: skip


def extract(
    path: Path, out: Path, begin: Sequence[str], end: Sequence[str], fixture: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Write the part of a graph between tensors.

    Args:
        path: the whole.
        out: the file to write.
        begin: tensors that become inputs; the graph's own inputs where they are needed when empty.
        end: tensors that become outputs; the graph's own when empty.
        fixture: inputs of the whole to prove the part on; random ones when None.

    Raises:
        StageError: an unknown tensor, a weight as input, or outputs that need more than these inputs.
        BudgetMissedError: the part computes something else.
    """
    model = read_whole(path)
    require_tensors(model.graph, [*begin, *end])
    if weights := {tensor.name for tensor in model.graph.initializer} & set(begin):
        raise StageError(f"{path}: {sorted(weights)[0]!r} is a weight, not a tensor to begin with")
    part = part_of(model, begin, end, types_of(path))
    if begin and (left := [value.name for value in part.graph.input if value.name not in begin]):
        names = ", ".join(left[:5])
        hint = "name these as well with --from, or begin further up"
        raise StageError(f"{path}: the part also needs {names}", hint=hint)
    write_whole(part, out, path)
    return summary(out, model.graph, part.graph, proof_of_part(path, out, fixture))


def part_of(
    model: onnx.ModelProto, begin: Sequence[str], end: Sequence[str], types: Mapping[str, TypeAndSizes]
) -> onnx.ModelProto:
    """Return the part between tensors; without `begin` from the graph's own inputs."""
    import onnx_graphsurgeon as gs

    graph: Any = gs.import_onnx(model)
    tensors = graph.tensors()
    for name in [*begin, *end]:
        if (known := types.get(name)) is not None and isinstance(tensors[name], gs.Variable):
            tensors[name].dtype, tensors[name].shape = known
    graph.outputs = [tensors[name] for name in end] or graph.outputs
    if begin:
        for name in begin:
            tensors[name].inputs.clear()
        own = [value for value in graph.inputs if value.name not in begin]
        graph.inputs = [tensors[name] for name in begin] + own
    graph.cleanup()
    graph.inputs = [value for value in graph.inputs if value.outputs or value in graph.outputs]
    return exported(graph, model)


def exported(graph: Any, like: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graphsurgeon graph as a model with the head of another: IR version, opsets, functions, producer."""
    import onnx_graphsurgeon as gs

    model = gs.export_onnx(graph, do_type_check=False)
    made = type(like)(ir_version=like.ir_version, producer_name=like.producer_name, graph=model.graph)
    used = {node.domain or "" for node in model.graph.node}
    made.opset_import.extend(entry for entry in like.opset_import if entry.domain in used or not entry.domain)
    made.functions.extend(like.functions)
    made.graph.ClearField("value_info")
    return made


def types_of(path: Path) -> dict[str, TypeAndSizes]:
    """Return tensor name to (numpy type, sizes), from onnx's own inference where it gets so far; no weight is read."""
    import onnx

    light = onnx_file.read_skeleton(path).model
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        graph = light.graph
    found: dict[str, TypeAndSizes] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        tensor = value.type.tensor_type
        if value.type.WhichOneof("value") != "tensor_type" or not tensor.elem_type:
            continue
        sizes: list[int | str | None] | None = None
        if tensor.HasField("shape"):
            sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        found[value.name] = (onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), sizes)
    return found


def cut(
    path: Path,
    out: Path,
    before: Sequence[str] = POST_PROCESSING,
    at: Sequence[str] = (),
    fixture: Mapping[str, Array] | None = None,
) -> dict[str, Any]:
    """Write a graph without its baked post-processing: what it was fed becomes the outputs.

    Args:
        path: the whole.
        out: the file to write.
        before: operators that go, with everything behind them.
        at: tensors to end at instead; nothing is looked for then.
        fixture: inputs of the whole to prove the rest on; random ones when None.

    Returns:
        As every surgery, with `cut` (nodes that went, by operator) and `dropped_outputs`.

    Raises:
        StageError: none of the operators is there, an unknown tensor, or nothing would be left.
        BudgetMissedError: the rest computes something else.
    """
    model = read_whole(path)
    require_tensors(model.graph, at)
    ends = list(at) or _frontier(model, path, before)
    rest = part_of(model, (), ends, types_of(path))
    write_whole(rest, out, path)
    kept = {name for node in rest.graph.node for name in node.output}
    gone = [node for node in model.graph.node if not kept & set(node.output)]
    operators: dict[str, int] = {}
    for node in gone:
        operators[node.op_type] = operators.get(node.op_type, 0) + 1
    dropped = [value.name for value in model.graph.output if value.name not in ends]
    proof = proof_of_part(path, out, fixture)
    return summary(out, model.graph, rest.graph, proof, cut=operators, dropped_outputs=dropped)


def _frontier(model: onnx.ModelProto, path: Path, before: Sequence[str]) -> list[str]:
    """Return the outputs that stay, then what the operators that go read of the rest."""
    graph = model.graph
    first = [node for node in graph.node if node.op_type in before]
    if not first:
        found = ", ".join(sorted({node.op_type for node in graph.node}))
        hint = "name the operator with --before, or tensors with --at"
        raise StageError(f"{path}: none of {', '.join(before)} in it; it has {found}", hint=hint)
    behind = _behind(graph, first)
    lost = {name for node in behind for name in node.output}
    fixed = _fixed(graph)
    stay = [value.name for value in graph.output if value.name not in lost]
    read = [name for node in behind for name in names_read(node) if name not in lost | fixed]
    inputs = {value.name for value in graph.input}
    ends = list(dict.fromkeys([*stay, *(name for name in read if name not in inputs)]))
    if not ends:
        raise StageError(f"{path}: nothing is left in front of {first[0].op_type}", hint="give tensors with --at")
    return ends


def _behind(graph: onnx.GraphProto, first: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    lost = {name for node in first for name in node.output}
    behind = []
    for node in graph.node:  # in running order
        if lost & {*names_read(node), *filter(None, node.output)}:
            behind.append(node)
            lost |= set(node.output)
    return behind


def _fixed(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors that depend on no input."""
    fixed = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if set(names_read(node)) <= fixed:
            fixed |= set(node.output)
    return fixed
