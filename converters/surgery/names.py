"""Names and sizes of a graph's inputs and outputs, and what is beside or inside of it brought into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import onnx_file
from converters.scan.graphs import graphs_in
from converters.surgery.files import (
    forget_inner_shapes,
    proof_of_part,
    read_whole,
    require_tensors,
    summary,
    tensors_of,
    write_whole,
)
from converters.wire import KEPT_BYTES
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, unknown_name

if TYPE_CHECKING:
    import onnx


def rename_io(
    path: Path, out: Path, names: Mapping[str, str], fixture: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Give inputs and outputs other names; nodes and bodies that read them follow.

    Args:
        path: the file.
        out: the file to write.
        names: old name to new name.
        fixture: inputs to prove it on; random ones when None.

    Raises:
        StageError: no input or output of that name, or the new name is taken.
    """
    model = read_whole(path)
    graph = model.graph
    ends = [value.name for value in (*graph.input, *graph.output)]
    taken = tensors_of(graph) - set(names)
    for old, new in names.items():
        if old not in ends:
            raise unknown_name("input or output", old, ends)
        if not new or new in taken or list(names.values()).count(new) > 1:
            raise StageError(f"{old}: the name {new!r} is taken or empty", hint="choose one that no tensor has")
    nodes = graph.node[:]
    before = type(graph)(node=nodes)
    _rename(graph, names)
    write_whole(model, out, path)
    turned = {new: old for old, new in names.items()}
    return summary(out, before, graph, proof_of_part(path, out, fixture, turned), renamed=dict(names))


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in graphs_in(attribute):
                own = {value.name for value in (*inner.input, *inner.initializer)}
                own |= {name for one in inner.node for name in one.output}
                _rename(inner, {old: new for old, new in names.items() if old not in own})


NO_INPUTS = "not proven: no random inputs of these sizes run"


def fix_shape(
    path: Path, out: Path, sizes: Mapping[str, int], shapes: Mapping[str, list[int]], *, fold: bool = False
) -> dict[str, Any]:
    """Make named sizes numbers, and whole inputs static.

    Args:
        path: the file.
        out: the file to write.
        sizes: name of a size (`batch`) to number, wherever inputs and outputs have it.
        shapes: input to all of its sizes.
        fold: compute what then is constant, as sizes that `Shape` measured.

    Raises:
        StageError: no such size or input, or a shape that contradicts a number that stands there.
    """
    model = read_whole(path)
    before = type(model.graph)(node=model.graph.node)
    known = {dim.dim_param for dim in _dims(model.graph) if dim.dim_param}
    for name in sizes:
        if name not in known:
            raise unknown_name("size", name, known)
    sizes = dict(sizes)
    for name, shape in shapes.items():
        _set_input(model.graph, name, shape, sizes)
    for dim in _dims(model.graph):
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]
    forget_inner_shapes(model.graph)
    folded = _folded(model) if fold else model
    write_whole(folded, out, path)
    left = sorted({dim.dim_param for dim in _dims(folded.graph) if dim.dim_param})
    feed = _fixed_feed(out)
    proof = proof_of_part(path, out, feed) if feed is not None else NO_INPUTS
    return summary(out, before, folded.graph, proof, named_sizes_left=left)


def _fixed_feed(out: Path) -> dict[str, Array] | None:
    """Return inputs that fit the fixed file, for the whole to be run on."""
    import onnx

    from converters.prove import runnable_inputs

    try:
        return runnable_inputs(onnx.load(str(out), load_external_data=False), out)[0]
    except StageError:
        return None


def _dims(graph: onnx.GraphProto) -> Iterator[Any]:
    for value in (*graph.input, *graph.output):
        yield from value.type.tensor_type.shape.dim


def _set_input(graph: onnx.GraphProto, name: str, shape: list[int], sizes: dict[str, int]) -> None:
    value = next((value for value in graph.input if value.name == name), None)
    if value is None:
        raise unknown_name("input", name, [value.name for value in graph.input])
    dims = value.type.tensor_type.shape.dim
    if value.type.tensor_type.HasField("shape") and len(dims) != len(shape):
        raise StageError(f"{name}: found {len(dims)} sizes, wanted is {shape}", hint="give as many as it has")
    while len(dims) < len(shape):
        dims.add()
    for at, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if size < 0 or (dim.HasField("dim_value") and dim.dim_value not in (size, -1)):
            raise StageError(
                f"{name}: size {at} is {dim.dim_value}, cannot be {size}", hint="keep sizes that are fixed"
            )
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            raise StageError(f"{name}: {dim.dim_param} is {sizes[dim.dim_param]} elsewhere, cannot be {size}")
        dim.dim_value = size


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Compute what is constant with onnxscript's folder, but nothing that would grow the file."""
    import onnx_ir
    import onnxscript.optimizer

    held = onnx_ir.from_proto(model)
    onnxscript.optimizer.fold_constants(held, onnx_shape_inference=True, output_size_limit=KEPT_BYTES)
    onnxscript.optimizer.remove_unused_nodes(held)
    made = onnx_ir.to_proto(held)
    forget_inner_shapes(made.graph)
    return made


def inline(path: Path, out: Path, fixture: Mapping[str, Array] | None = None) -> dict[str, Any]:
    """Bring side files and model-local functions into the graph: one file that hides nothing.

    Raises:
        StageError: a side file is missing, short or outside of the folder, or the result passes 2 GiB.
    """
    import onnx.inliner

    outside = sum(t.data_location == t.EXTERNAL for t in onnx_file.read_skeleton(path).model.graph.initializer)
    model = read_whole(path)
    functions = len(model.functions)
    made = onnx.inliner.inline_local_functions(model) if functions else model
    require_tensors(made.graph, [value.name for value in model.graph.output])
    write_whole(made, out, path)
    proof = proof_of_part(path, out, fixture)
    return summary(out, model.graph, made.graph, proof, weights_brought_in=outside, functions_inlined=functions)
