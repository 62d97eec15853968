"""Reading a model with its weights inside, writing it whole, and proving that a part computes what the whole did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import onnx_file, onnx_writer
from converters.divergence import values_of
from converters.passes import inline_weights
from converters.passes.base import Context
from converters.prove import outputs_of, runnable_inputs
from converters.scan.graphs import nodes_within
from converters.scan.operators import STANDARD
from weights_bridge.compare import Array, compare_sets
from weights_bridge.errors import BudgetMissedError, StageError, all_at_once, unknown_name
from weights_bridge.files import written_whole

if TYPE_CHECKING:
    import onnx

BUDGET_DB = 100.0  # of a part against the whole; the same nodes mostly give the same bits


def read_whole(path: Path) -> onnx.ModelProto:
    """Return a model with its weights, those of side files included.

    Raises:
        StageError: unreadable, a side file is missing, short or outside of the folder, or a function calls itself.
    """
    model = onnx_file.loaded(path)
    if not any(entry.domain in STANDARD for entry in model.opset_import):
        raise StageError(f"{path}: no opset of ONNX's own operators", hint="write the file again with an opset")
    if around := functions_in_a_circle(model):
        message = f"{path}: functions that call themselves: {', '.join(around[:3])}"
        raise StageError(message, hint="no ONNX model may hold them; export it again")
    outcome = inline_weights.run(model, Context(path.parent, name=path.name))
    if outcome.left:
        faults = [f"{name}: {why}" for name, why in outcome.left.items()]
        raise all_at_once(f"{path}: weights that cannot be brought inside:", faults, hint="fetch the side files again")
    return model


def functions_in_a_circle(model: onnx.ModelProto) -> list[str]:
    """Return the names of functions that call themselves, through others or not, and of those that call such."""
    calls = {
        (one.domain, one.name): {(node.domain, node.op_type) for node in nodes_within(one)} for one in model.functions
    }
    left = set(calls)
    while ended := {name for name in left if not calls[name] & left}:
        left -= ended
    return sorted(f"{domain}::{name}" for domain, name in left)


def write_whole(model: onnx.ModelProto, out: Path, source: Path) -> None:
    """Check a model and write it whole or not at all.

    Raises:
        StageError: `out` is the source, the model is not valid, or it passes 2 GiB.
    """
    import onnx

    if realpath(out) == realpath(source):
        raise StageError(f"{out}: is the input; the input is never changed", hint="give another --out")
    if (size := model.ByteSize()) > onnx_file.LIMIT_BYTES:
        raise onnx_writer.too_large(out, size)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        first = str(error).strip().splitlines()[0]
        message = f"{source}: what would be written is not valid ONNX: {first}"
        raise StageError(message, hint="nothing was written; `mlx-sentis scan` says what is wrong with it") from None
    with written_whole(out) as beside:
        beside.write_bytes(model.SerializeToString(deterministic=True))


def tensors_of(graph: onnx.GraphProto) -> set[str]:
    """Return the names of inputs, initialisers and what nodes put out."""
    made = {name for node in graph.node for name in node.output if name}
    return made | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}


def require_tensors(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Require that a graph has tensors of these names.

    Raises:
        StageError: the first that it has not, with the nearest.
    """
    known = tensors_of(graph)
    for name in names:
        if name not in known:
            raise unknown_name("tensor", name, known)


def forget_inner_shapes(graph: onnx.GraphProto) -> None:
    """Drop what was declared about inner tensors: after a change it may be wrong, and every tool infers it anew."""
    graph.ClearField("value_info")


def proof_of_part(
    whole: Path, part: Path, fixture: Mapping[str, Array] | None = None, names: Mapping[str, str] | None = None
) -> str:
    """Run the whole, feed the part with the whole's own inner tensors, and compare what it puts out.

    Args:
        whole: the file a part was taken of.
        part: its inputs and outputs are tensors of the whole.
        fixture: inputs of the whole; random ones in range when None.
        names: the part's name of a tensor to the whole's, where they differ.

    Returns:
        What was measured, or why nothing could be.

    Raises:
        BudgetMissedError: the part computes something else; it is removed again.
    """
    import onnx

    source = onnx.load(str(whole), load_external_data=False)
    graph = onnx_file.read_skeleton(part).model.graph
    renamed = dict(names or {})
    given = {tensor.name for tensor in graph.initializer}
    asked = [value.name for value in graph.input if value.name not in given]
    made = [value.name for value in graph.output]
    try:
        feed = dict(fixture) if fixture is not None else runnable_inputs(source, whole)[0]
        wanted_names = [renamed.get(name, name) for name in dict.fromkeys([*asked, *made])]
        inner = [name for name in wanted_names if name not in feed]
        values = feed | values_of(whole, inner, feed)
    except StageError as error:
        return f"not proven: {error.message}"
    with removed_on_failure(part):
        found = outputs_of(part, {name: values[renamed.get(name, name)] for name in asked})
        results = compare_sets({name: values[renamed.get(name, name)] for name in made}, found, BUDGET_DB)
        if failed := [result for result in results if not result.passed and result.reason != "nothing compared"]:
            raise BudgetMissedError(f"{part.name} computes something else than {whole.name}: {failed[0]}")
    levels = [result.psnr_db for result in results if result.psnr_db is not None]
    return f"equal in ONNX Runtime, {min(levels):.1f} dB or better" if levels else "equal in ONNX Runtime, exact"


@contextmanager
def removed_on_failure(out: Path) -> Iterator[None]:
    """Take a written file away again where its proof fails: nobody shall find it and take it for good."""
    try:
        yield
    except StageError:
        out.unlink()
        raise


def operators_of(graph: onnx.GraphProto) -> dict[str, int]:
    """Return operator to count."""
    from collections import Counter

    return dict(sorted(Counter(node.op_type for node in graph.node).items()))


def summary(out: Path, before: onnx.GraphProto, after: onnx.GraphProto, proof: str, **more: Any) -> dict[str, Any]:
    """Return what a command answers about a file it wrote."""
    nodes = {"before": len(before.node), "after": len(after.node)}
    inputs, outputs = ([value.name for value in side] for side in (after.input, after.output))
    return {"output": str(out), "nodes": nodes, "inputs": inputs, "outputs": outputs, "proof": proof} | more
