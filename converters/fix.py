"""Mending a model file with passes, each proven in ONNX Runtime; the input is never changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import onnx_file
from converters.finding import Finding
from converters.mending import Mending, Row, require_weights
from converters.passes import PASSES
from converters.passes.base import LEAST_GROWTH, Context, Pass
from converters.passes.light import light_model
from converters.passes.unmended import why_not
from converters.prove import Tensors
from converters.scan import scan
from converters.scan.inference import light_copy
from weights_bridge.compare import Array
from weights_bridge.errors import BudgetMissedError, StageError, counted, unknown_name
from weights_bridge.files import written_whole
from weights_bridge.npz import read_npz

if TYPE_CHECKING:
    import onnx

ROUNDS = 8  # what one pass writes may be another's to mend; then the passes come to rest
GROWTH = 0.25  # of the input's size, what constants of the passes may add
NO_NUMBERS = (0, 8)  # TensorProto.UNDEFINED and STRING
BOUND_AT_MOST = 1 << 24  # numbers of an input that becomes a constant
INSIDE = " / "  # between the names of a node with a body and one in it


def fix_model(
    src: Path,
    out: Path,
    only: str | Sequence[str] = (),
    *,
    sentis: str = "2.6",
    inputs: Tensors | None = None,
    bind: dict[str, str] | None = None,
    check_each: bool = False,
    growth: float = GROWTH,
) -> dict[str, Any]:
    """Run the passes over a model until they come to rest, and write the result.

    Args:
        src: the file to mend; it is only read.
        out: the file to write, whole or not at all; not `src`.
        only: passes by name, which run in the order of the list all the same; none named is all.
        sentis: the version whose findings are compared.
        inputs: arrays to prove equality on; three kinds of random ones when None.
        bind: inputs that become constants, name to a number, or to numbers with commas between them.
        check_each: prove each place by itself, so that a failure names the node.
        growth: what constants of the passes may add, of the input's size.

    Returns:
        `{"passes": [{"name", "why", "changed", "left", "proof"}], "operators": {"before", "after"}, "findings": …,
        "explained": [{"id", "node", "why"}]}`: the last says of each finding that is left why it is.

    Raises:
        StageError: unreadable, an unknown pass, `out` is `src`, or weights that are not beside it or `out`.
        BudgetMissedError: a pass changed the numbers; nothing is written.
    """
    if realpath(out) == realpath(src):
        raise StageError(f"{out}: is the input; the input is never changed", hint="give another --out")
    named = {only} if isinstance(only, str) else {*only}
    for unknown in sorted(named - PASSES.keys()):
        raise unknown_name("pass", unknown, PASSES)
    findings_before = scan(src, sentis)
    model = onnx_file.loaded(src)
    hint = "put every side file, whole, beside the model"
    require_weights(model, Context(src.parent, name=src.name), f"{src}: weights that cannot be read:", hint)
    operators_before = _operators(model)
    bound = _bind(model, bind or {})
    room = max(LEAST_GROWTH, int(growth * src.stat().st_size))
    side = out.with_name(out.name + ".data")
    with written_whole(out) as beside, _dropped_on_failure(side):
        context = Context(src.parent, sentis, room, side, name=src.name)
        mending = Mending(src, beside, model, context, inputs, bound, check_each, light_copy(model))
        chosen = [one for one in PASSES.values() if one.name in named or not (named or one.on_request)]
        for _ in range(ROUNDS):
            if not sum([mending.apply(one) for one in chosen]):
                break
        _refuse_undone(model, [one for one in chosen if mending.rows[one.name].changed], sentis)
        mending.write()
    after = scan(out, sentis)
    rows = [{"name": one.name, "why": one.why} | vars(mending.rows[one.name]) for one in chosen]
    return {
        "input": str(src),
        "output": str(out),
        "sentis": context.known.version,
        "passes": rows,
        "operators": {"before": operators_before, "after": _operators(model)},
        "findings": {
            "before": [finding.as_json() for finding in findings_before],
            "after": [finding.as_json() for finding in after],
        },
        "explained": [_explained(finding, mending.rows) for finding in after],
    }


def _refuse_undone(model: onnx.ModelProto, changed: list[Pass], sentis: str) -> None:
    """Let the fusion matcher look at the new graph: Sentis must not put back what a pass took out.

    Raises:
        BudgetMissedError: it would.
    """
    if not any(one.undone_as for one in changed):
        return
    from converters.fusions import predict

    fused = predict(light_model(model), sentis).fused
    for one in changed:
        for found in fused:
            if found.layer in one.undone_as and any(f"/{one.name}_" in node for node in found.nodes):
                message = f"pass {one.name} is undone: Sentis fuses {found.value!r} back to {found.layer}"
                raise BudgetMissedError(message, hint="this is a defect of the pass; run the others with --only")


@contextmanager
def _dropped_on_failure(side: Path) -> Iterator[None]:
    """Remove a side file that a pass wrote when what follows fails."""
    was_there = side.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            side.unlink(missing_ok=True)
        raise


def _explained(finding: Finding, rows: dict[str, Row]) -> dict[str, str]:
    """Say why a finding is left: the reason of its pass, or what helps outside of `fix`."""
    reasons = []
    for name in finding.passes:
        left = rows[name].left if name in rows else {}
        operator = finding.operator.rpartition("::")[2]
        why = left.get(finding.node) or left.get(operator) or next(iter(left.values()), "")
        ran = "in a body of control flow that is left" if INSIDE in finding.node else "left it"
        reasons.append(f"{name}: {why}" if why else f"{name} did not run" if name not in rows else f"{name}: {ran}")
    told = "; ".join(reasons) or _unmended(finding)
    return {"id": finding.id, "node": finding.node, "why": told}


def _unmended(finding: Finding) -> str:
    why = why_not(finding.id, finding.operator)
    return f"cannot be mended: {why or 'no pass is known'}; {finding.mend or 'export the model without it'}"


def _bind(model: onnx.ModelProto, values: dict[str, str]) -> Tensors:
    """Turn inputs into constants and return them.

    Raises:
        StageError: no such input, numbers of another type, or too few or too many of them.
    """
    import onnx

    bound: Tensors = {}
    named = {value.name: value for value in model.graph.input}
    for name, text in values.items():
        if name not in named:
            raise unknown_name("input", name, named)
        bound[name] = _bound(f"--bind {name}={text}", text, named[name])
        model.graph.initializer.append(onnx.numpy_helper.from_array(bound[name], name))
        model.graph.input.remove(named[name])
    return bound


def _bound(asked: str, text: str, value: onnx.ValueInfoProto) -> Array:
    """Return an input's array: one number everywhere, or as many as its shape holds."""
    import onnx

    declared = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or declared.elem_type in NO_NUMBERS:
        raise StageError(f"{asked}: the input is no tensor of numbers", hint="bind another one")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
    try:
        numbers = [_number(word, dtype) for word in text.split(",")]
    except (ValueError, OverflowError):
        wanted = f"wanted one {dtype} number, or several with commas between them"
        raise StageError(f"{asked}: {wanted}", hint="as in --bind sr=16000") from None
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in declared.shape.dim]
    try:
        if len(numbers) == 1 and abs(math.prod(sizes)) <= BOUND_AT_MOST:
            return np.full([abs(size) for size in sizes], numbers[0], dtype)
        return np.array(numbers, dtype).reshape(sizes if declared.HasField("shape") else [-1])
    except ValueError:
        shape = str(sizes).replace("-1", "?")
        said = f"{counted(len(numbers), 'number')} for a shape of {shape}"
        raise StageError(f"{asked}: {said}", hint="give one for all places, or one for each") from None


def _number(word: str, dtype: np.dtype) -> Any:
    return word.lower() in ("1", "true") if dtype.kind == "b" else dtype.type(word)


def read_fixture(path: Path) -> dict[str, Array]:
    """Return the `in::<name>` arrays of a fixture.

    Raises:
        StageError: not an npz file, or without inputs.
    """
    hint = "give onnx/fixtures/*.npz of a run"
    inputs = {key[4:]: array for key, array in read_npz(path, hint).items() if key.startswith("in::")}
    if not inputs:
        raise StageError(f"{path}: no in:: arrays", hint=hint)
    return inputs


def _operators(model: onnx.ModelProto) -> dict[str, int]:
    return dict(sorted(Counter(node.op_type for node in model.graph.node).items()))
