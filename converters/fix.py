"""Mending a model file with passes, each proven in ONNX Runtime; the input is never changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import onnx_file, onnx_writer
from converters.divergence import first_divergence
from converters.finding import Finding
from converters.passes import PASSES
from converters.passes.base import LEAST_GROWTH, Context, Outcome, Pass
from converters.passes.light import light_model
from converters.passes.unmended import why_not
from converters.prove import Reference, Tensors, measured, reference_of, rerun
from converters.scan import scan
from converters.scan.inference import light_copy
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import BudgetMissedError, StageError, unknown_name
from weights_bridge.files import written_whole
from weights_bridge.npz import read_npz

if TYPE_CHECKING:
    import onnx

ROUNDS = 8  # what one pass writes may be another's to mend; then the passes come to rest
GROWTH = 0.25  # of the input's size, what constants of the passes may add
INSIDE = " / "  # between the names of a node with a body and one in it
OLDEST_IR = 4  # older files list every initialiser as an input as well


@dataclass
class _Row:
    """What one pass did over all rounds."""

    changed: int = 0
    left: dict[str, str] = field(default_factory=dict)
    proof: str = "nothing changed"


@dataclass
class _Mending:
    """A model on its way through the passes.

    Attributes:
        src: the file it came from.
        beside: where it is written for ONNX Runtime, and at last.
        model: as it stands.
        context: what passes may know.
        fixture: inputs to prove on; random ones when None.
        bound: inputs that became constants.
        check_each: whether each place is proven by itself.
        reference: what the model gave; made when the first pass changes something.
        rows: pass to what it did.
    """

    src: Path
    beside: Path
    model: onnx.ModelProto
    context: Context
    fixture: Tensors | None
    bound: Tensors
    check_each: bool
    declared: onnx.ModelProto
    reference: Reference | None = None
    rows: dict[str, _Row] = field(default_factory=dict)

    def apply(self, chosen: Pass) -> int:
        """Run a pass and prove it; return how many places it changed."""
        row = self.rows.setdefault(chosen.name, _Row())
        changed = 0
        while True:
            self.context.most_places = 1 if self.check_each else None
            outcome = chosen.run(self.model, self.context)
            self.context.forget()
            row.left = outcome.left
            changed += outcome.changed
            row.changed += outcome.changed
            if outcome.changed:
                self.model.ir_version = max(self.model.ir_version, OLDEST_IR)
                row.proof = self._proof(chosen, outcome)
            if not self.check_each or not outcome.changed or chosen.name in WHOLE:
                return changed

    def _proof(self, chosen: Pass, outcome: Outcome) -> str:
        """Write the model as it stands and compare; the file on disk is what ONNX Runtime reads."""
        self.reference = self.reference or reference_of(self.declared, self.src, self.fixture, self.bound)
        self.beside.write_bytes(_serialised(self.model, self.beside))
        results = measured(self.reference, self.beside, chosen.name)
        runner = "" if self.reference.runner == "ONNX Runtime" else f", in {self.reference.runner}"
        if chosen.by_design:
            self.reference = rerun(self.reference, self.beside)
            return f"changed by design ({chosen.by_design}): {_levels(results)}{runner}"
        if failed := [result for result in results if not result.passed]:
            where = f" at {outcome.places[0]}" if self.check_each and outcome.places else ""
            hint = "this is a defect of the pass on this model; run the others with --only"
            hint = hint if self.check_each else f"{hint}, or name the node with --check-each"
            place = self._first_divergence(failed[0])
            raise BudgetMissedError(f"pass {chosen.name}{where} changed the numbers: {failed[0]}{place}", hint=hint)
        return f"{_levels(results)}{runner}"

    def _first_divergence(self, failed: GateResult) -> str:
        """Return where the file first differs from the input, for the probe that failed; empty where nothing shows."""
        if self.reference is None or self.reference.runner != "ONNX Runtime":
            return ""
        inputs = self.reference.inputs[failed.tensor.split(" / ")[1]]
        budget = self.reference.budget_db
        try:
            first = first_divergence(self.src, self.beside, inputs | self.bound, budget, inputs_after=inputs)
        except StageError:
            return ""
        return f"; {first}" if first is not None else ""


WHOLE = (
    "inline_weights",
    "resequence_weights",
    "drop_metadata",
    "inline_functions",
    "clamp_int64",
)  # these know no single places


def _levels(results: list[GateResult]) -> str:
    missed = [result for result in results if not result.passed and result.psnr_db is None and result.reason != "exact"]
    levels = [result.psnr_db for result in results if result.psnr_db is not None]
    level = f"{min(levels):.1f} dB or better" if levels else "exact"
    return f"{level}; {missed[0]}" if missed else level


def fix_model(
    src: Path,
    out: Path,
    only: str | None = None,
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
        only: one pass by name; all in order when None.
        sentis: the version whose findings are compared.
        inputs: arrays to prove equality on; three kinds of random ones when None.
        bind: inputs that become constants, name to number.
        check_each: prove each place by itself, so that a failure names the node.
        growth: what constants of the passes may add, of the input's size.

    Returns:
        `{"passes": [{"name", "why", "changed", "left", "proof"}], "operators": {"before", "after"}, "findings": …,
        "explained": [{"id", "node", "why"}]}`: the last says of each finding that is left why it is.

    Raises:
        StageError: unreadable, an unknown pass, or `out` is `src`.
        BudgetMissedError: a pass changed the numbers; nothing is written.
    """
    if realpath(out) == realpath(src):
        raise StageError(f"{out}: is the input; the input is never changed", hint="give another --out")
    if only is not None and only not in PASSES:
        raise unknown_name("pass", only, PASSES)
    findings_before = scan(src, sentis)
    model = onnx_file.loaded(src)
    operators_before = _operators(model)
    bound = _bind(model, bind or {})
    room = max(LEAST_GROWTH, int(growth * src.stat().st_size))
    side = out.with_name(out.name + ".data")
    with written_whole(out) as beside, _dropped_on_failure(side):
        context = Context(src.parent, sentis, room, side)
        mending = _Mending(src, beside, model, context, inputs, bound, check_each, light_copy(model))
        chosen = [PASSES[only]] if only else [one for one in PASSES.values() if not one.on_request]
        for _ in range(ROUNDS):
            if not sum([mending.apply(one) for one in chosen]):
                break
        _refuse_undone(model, [one for one in chosen if mending.rows[one.name].changed], sentis)
        beside.write_bytes(_serialised(model, out))
    after = scan(out, sentis)
    rows = [{"name": one.name, "why": one.why} | vars(mending.rows[one.name]) for one in chosen]
    return {
        "input": str(src),
        "output": str(out),
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


def _explained(finding: Finding, rows: dict[str, _Row]) -> dict[str, str]:
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
        StageError: no such input, not one number, or a number of another type.
    """
    import onnx

    bound: Tensors = {}
    named = {value.name: value for value in model.graph.input}
    for name, text in values.items():
        if name not in named:
            raise unknown_name("input", name, named)
        kind = named[name].type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        try:
            number = text.lower() in ("1", "true") if dtype.kind == "b" else np.dtype(dtype).type(text)
        except ValueError:
            raise StageError(f"--bind {name}={text}: wanted one {dtype} number") from None
        bound[name] = np.full(shape, number, dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(bound[name], name))
        model.graph.input.remove(named[name])
    return bound


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


def _serialised(model: onnx.ModelProto, out: Path) -> bytes:
    if (size := model.ByteSize()) > onnx_file.LIMIT_BYTES:
        raise onnx_writer.too_large(out, size)
    return model.SerializeToString(deterministic=True)
