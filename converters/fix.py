"""Mending a model file with passes, each proven in ONNX Runtime; the input is never changed."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters import onnx_file, onnx_writer
from converters.passes import PASSES
from converters.passes.base import Pass
from converters.prove import outputs_of, prove_equal, runnable_inputs
from converters.scan import scan
from weights_bridge.compare import Array
from weights_bridge.errors import BudgetMissedError, StageError, unknown_name
from weights_bridge.files import written_whole

if TYPE_CHECKING:
    import onnx


def fix_model(
    src: Path,
    out: Path,
    only: str | None = None,
    *,
    sentis: str = "2.6",
    inputs: dict[str, Array] | None = None,
) -> dict[str, Any]:
    """Run the passes over a model and write the result.

    Args:
        src: the file to mend; it is only read.
        out: the file to write, whole or not at all; not `src`.
        only: one pass by name; all in order when None.
        sentis: the version whose findings are compared.
        inputs: arrays to prove equality on; random ones in range when None.

    Returns:
        `{"passes": [{"name", "changed", "left", "proof"}], "operators": {"before", "after"}, "findings": …}`.

    Raises:
        StageError: unreadable, an unknown pass, or `out` is `src`.
        BudgetMissedError: a pass changed the numbers; nothing is written.
    """
    if out.resolve() == src.resolve():
        raise StageError(f"{out}: is the input; the input is never changed", hint="give another --out")
    if only is not None and only not in PASSES:
        raise unknown_name("pass", only, PASSES)
    findings_before = scan(src, sentis)
    model = _load(src)
    operators_before = _operators(model)
    proof: tuple[dict[str, Array], dict[str, Array]] | None = None
    rows = []
    with written_whole(out) as beside:
        for chosen in [PASSES[only]] if only else PASSES.values():
            outcome = chosen.run(model, src.parent)
            row = {"name": chosen.name, "why": chosen.why} | outcome.as_json() | {"proof": "nothing changed"}
            if outcome.changed:
                proof = proof or (runnable_inputs(model, src) if inputs is None else (inputs, outputs_of(src, inputs)))
                row["proof"] = _proof(chosen, model, beside, *proof)
            rows.append(row)
        beside.write_bytes(_serialised(model, out))
    after = scan(out, sentis)
    return {
        "input": str(src),
        "output": str(out),
        "passes": rows,
        "operators": {"before": operators_before, "after": _operators(model)},
        "findings": {
            "before": [finding.as_json() for finding in findings_before],
            "after": [finding.as_json() for finding in after],
        },
    }


def read_fixture(path: Path) -> dict[str, Array]:
    """Return the `in::<name>` arrays of a fixture.

    Raises:
        StageError: not an npz file, or without inputs.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            inputs = {key.removeprefix("in::"): file[key] for key in file.files if key.startswith("in::")}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise StageError(f"{path}: not an npz fixture: {error}", hint="give onnx/fixtures/*.npz of a run") from None
    if not inputs:
        raise StageError(f"{path}: no in:: arrays", hint="give onnx/fixtures/*.npz of a run")
    return inputs


def _load(src: Path) -> onnx.ModelProto:
    import onnx

    onnx_file.read_skeleton(src)  # says what is wrong with a file that is no model
    return onnx.load(str(src), load_external_data=False)


def _operators(model: onnx.ModelProto) -> dict[str, int]:
    return dict(sorted(Counter(node.op_type for node in model.graph.node).items()))


def _serialised(model: onnx.ModelProto, out: Path) -> bytes:
    if (size := model.ByteSize()) > onnx_file.LIMIT_BYTES:
        raise onnx_writer.too_large(out, size)
    return model.SerializeToString(deterministic=True)


def _proof(
    chosen: Pass, model: onnx.ModelProto, beside: Path, feed: dict[str, Array], reference: dict[str, Array]
) -> str:
    """Write the model as it stands and compare; the file on disk is what ONNX Runtime reads."""
    if chosen.by_design:
        return f"not compared: {chosen.by_design}"
    beside.write_bytes(_serialised(model, beside))
    results = prove_equal(reference, beside, feed, chosen.name)
    if failed := [result for result in results if not result.passed]:
        hint = "this is a defect of the pass on this model; run the others with --only"
        raise BudgetMissedError(f"pass {chosen.name} changed the numbers: {failed[0]}", hint=hint)
    levels = [result.psnr_db for result in results if result.psnr_db is not None]
    return f"{min(levels):.1f} dB or better" if levels else "exact"
