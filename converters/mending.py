"""A model on its way through the passes: each is run, written to disk and proven in ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from converters import onnx_file, onnx_writer
from converters.divergence import first_divergence
from converters.passes.base import Context, Outcome, Pass
from converters.passes.inline_weights import refusal, tensors_of
from converters.prove import Reference, Tensors, measured, reference_of, rerun
from weights_bridge.compare import GateResult
from weights_bridge.errors import BudgetMissedError, StageError, all_at_once

if TYPE_CHECKING:
    import onnx

OLDEST_IR = 4  # older files list every initialiser as an input as well
WHOLE = (
    "inline_weights",
    "resequence_weights",
    "drop_metadata",
    "inline_functions",
    "clamp_int64",
)  # these know no single places


@dataclass
class Row:
    """What one pass did over all rounds."""

    changed: int = 0
    left: dict[str, str] = field(default_factory=dict)
    proof: str = "nothing changed"


@dataclass
class Mending:
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
    rows: dict[str, Row] = field(default_factory=dict)

    def apply(self, chosen: Pass) -> int:
        """Run a pass and prove it; return how many places it changed."""
        row = self.rows.setdefault(chosen.name, Row())
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
        self.write()
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

    def write(self) -> None:
        """Write the model as it stands.

        Raises:
            StageError: its weights are not beside it there, or it passes 2 GiB.
        """
        hint = "write it beside its side files, or without --only: then they come inside"
        require_weights(
            self.model, Context(self.beside.parent), f"{self.src}: weights that the result would lack:", hint
        )
        self.beside.write_bytes(_serialised(self.model, self.beside))

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


def require_weights(model: onnx.ModelProto, context: Context, heading: str, hint: str) -> None:
    """Require that what is in side files can be read from a folder.

    Raises:
        StageError: every weight that cannot.
    """
    outside = [tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL]
    if faults := [f"{tensor.name}: {why}" for tensor in outside if (why := refusal(tensor, context))]:
        raise all_at_once(heading, faults, hint=hint)


def _levels(results: list[GateResult]) -> str:
    missed = [result for result in results if not result.passed and result.psnr_db is None and result.reason != "exact"]
    levels = [result.psnr_db for result in results if result.psnr_db is not None]
    level = f"{min(levels):.1f} dB or better" if levels else "exact"
    return f"{level}; {missed[0]}" if missed else level


def _serialised(model: onnx.ModelProto, out: Path) -> bytes:
    if (size := model.ByteSize()) > onnx_file.LIMIT_BYTES:
        raise onnx_writer.too_large(out, size)
    return model.SerializeToString(deterministic=True)
