"""Measuring Float16 and Uint8 beside fp32: predicted error of every output, sizes, and the held-out rows' axes.

The error is the emulator's against the emulator's, so it is what the weights cost and nothing else. The task is
answered by ONNX Runtime with the quantised numbers in the graph's place, greedily, as `eval` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converters.replaced import Replaced, replaced
from mlx_sentis.evaluation.generator import Answered
from parity.emulator.emulation import Emulation
from parity.emulator.quantise import TRUNCATED
from parity.emulator.selection import Selection
from parity.evaluate import Said, ask, held_out_rows, reader_of, scored_document
from parity.fixtures import read_inputs
from parity.triple.compared import compare_outputs
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

FULL = "fp32"
ALWAYS_DB = -1e9  # errors are told, not judged: what a kind costs the task decides


@dataclass
class Kind:
    """One way to keep the weights.

    Attributes:
        name: `float16` or `uint8`.
        stored_bytes: of all constants, in the file and at rest.
        errors: per fixture and output, against unquantised weights; empty where nothing is predicted.
        why_not: why nothing is predicted.
        truncated: the same errors if the engine cut halves off instead of rounding; Float16 only.
        task: `scored_document` of fp32 (before) and this kind (after); None where it was not asked.
        task_why_not: why not.
        changed: how many rows are answered otherwise than with fp32.
        notes: what is not exact.
    """

    name: str
    stored_bytes: int
    errors: list[GateResult] = field(default_factory=list)
    why_not: str = ""
    truncated: list[GateResult] = field(default_factory=list)
    task: dict[str, Any] | None = None
    task_why_not: str = ""
    changed: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def worst(self) -> GateResult | None:
        """The output that loses most; None where nothing is predicted."""
        return _worst(self.errors)

    @property
    def worst_truncated(self) -> GateResult | None:
        return _worst(self.truncated)

    @property
    def regressed(self) -> list[str]:
        """The axes that this kind makes worse."""
        verdicts = (self.task or {}).get("verdicts", {})
        return [axis for axis, found in verdicts.items() if found["word"] == "regressed"]


def _worst(results: Sequence[GateResult]) -> GateResult | None:
    failed = [result for result in results if not result.passed]
    if failed:
        return failed[0]
    return min(results, key=lambda r: float("inf") if r.psnr_db is None else r.psnr_db, default=None)


def predicted_errors(
    onnx: Path,
    fixtures: Mapping[str, Path],
    kinds: Sequence[str],
    chosen: Selection,
    say: Callable[[str], None],
) -> dict[str, Kind]:
    """Predict what each kind costs every output.

    Args:
        onnx: the graph.
        fixtures: name to npz file; only their inputs are read.
        kinds: of `KINDS`.
        chosen: which constants are replaced.
        say: hears what is being predicted.
    """
    found = {name: Kind(name, chosen.stored_bytes(name)) for name in kinds}
    if not fixtures:
        for kind in found.values():
            kind.why_not = "no fixture: `mlx-sentis parity RUN --edge a` measures on those of a run"
        return found
    inputs = {name: read_inputs(path) for name, path in fixtures.items()}
    say(f"predicting {FULL}")
    full, why = _outputs(onnx, inputs, chosen.sentis, None)
    for name in (*kinds, *([TRUNCATED] if "float16" in kinds else [])):
        kind = found["float16" if name == TRUNCATED else name]
        if why:
            kind.why_not = why
            continue
        say(f"predicting {name}")
        outputs, kind_why = _outputs(onnx, inputs, chosen.sentis, name)
        kind.why_not = kind.why_not or kind_why
        into = kind.truncated if name == TRUNCATED else kind.errors
        for fixture, reference in full.items() if not kind_why else ():
            into += compare_outputs(reference, outputs[fixture], ALWAYS_DB, f"{fixture} / ")
    return found


def _outputs(
    onnx: Path, inputs: Mapping[str, Mapping[str, Array]], sentis: str, how: str | None
) -> tuple[dict[str, Mapping[str, Array]], str]:
    """Return the emulator's outputs per fixture, or why there are none."""
    emulation = Emulation(onnx, sentis, how)
    found: dict[str, Mapping[str, Array]] = {}
    for name, given in inputs.items():
        prediction = emulation.predict(given)
        if prediction.verdict != "predicted":
            return {}, f"{prediction.verdict}: {prediction.reason}"
        found[name] = prediction.outputs
    return found, ""


def measure_task(
    run: RunFolder,
    settings: Settings,
    kinds: Mapping[str, Kind],
    chosen: Selection,
    rows: int | None,
    quiet: bool,
) -> int:
    """Answer the held-out rows with each kind's weights and compare with fp32, axis by axis.

    Args:
        run: with `data/` and `onnx/`.
        settings: `eval.rows`, `eval.max_new_tokens`.
        kinds: what is filled in.
        chosen: which constants are replaced.
        rows: the first N held-out rows; None takes `eval.rows`, 0 is all.
        quiet: no progress bar.

    Returns:
        How many rows were answered.

    Raises:
        StageError: there is no held-out row.
    """
    asked = held_out_rows(run, settings.eval.rows if rows is None else rows)
    full = recorded_answers(run, asked)
    if full is None:
        full = _answers(run, settings, asked, None, FULL, quiet)
    for kind in kinds.values():
        numbers, kind.task_why_not = replaced_weights(run.path("onnx", "model.onnx"), chosen, kind)
        if numbers is None:
            continue
        said = _answers(run, settings, asked, numbers, kind.name, quiet)
        document = scored_document("onnx", asked, {"before": full, "after": said})
        kind.task = {key: document[key] for key in ("before", "after", "verdicts", "rows")}
        kind.changed = sum(a.text != b.text for a, b in zip(full.answered, said.answered, strict=True))
    return len(asked)


def _answers(
    run: RunFolder,
    settings: Settings,
    asked: Sequence[dict[str, Any]],
    numbers: Replaced | None,
    label: str,
    quiet: bool,
) -> Said:
    from parity.runners.onnx_decoder import OnnxDecoder

    contract = read_json(run.path("onnx", "contract.json"))
    decoder = OnnxDecoder(run.path("onnx", "model.onnx"), contract, other_numbers=numbers)
    return ask(run, settings, decoder, asked, label, quiet)[0]


def recorded_answers(run: RunFolder, asked: Sequence[dict[str, Any]]) -> Said | None:
    """Return what `eval` recorded of the tuned graph on these rows, None where it is of other rows, files or runner."""
    axes = run.path("eval", "axes.json")
    stage = run.manifest()["stages"].get("eval", {"inputs": {}, "outputs": {}})
    if not axes.is_file() or "eval/axes.json" not in stage["outputs"] or run.altered([axes]):
        return None
    now = run.recorded_hashes()
    if any(now.get(name, digest) != digest for name, digest in stage["inputs"].items()):
        return None
    document = read_json(axes)
    recorded = document["rows"][: len(asked)]
    if document["runner"] != "onnx" or [row["id"] for row in recorded] != [row["id"] for row in asked]:
        return None
    read_one = reader_of(read_json(run.path("recipe.json")), read_json(run.path("data", "dataset.json")))
    answered = [Answered(row, one["after"]["text"], 0) for row, one in zip(asked, recorded, strict=True)]
    return Said(answered, [read_one(one.row, one.text) for one in answered])


def replaced_weights(onnx: Path, chosen: Selection, kind: Kind) -> tuple[Replaced | None, str]:
    """Return the graph with the numbers that one kind stores, or why ONNX Runtime cannot have them."""
    case = Emulation(onnx, chosen.sentis, kind.name).declared
    if case.made is None:
        return None, f"{case.verdict}: {case.reason}"
    held = case.made.graph.held
    try:
        found = replaced(onnx, {one.name: held[one.name] for one in chosen.chosen})
    except StageError as error:
        return None, error.message
    half = sum(array.dtype == np.float16 for array in found.values.values())
    if half and kind.name != "float16":
        kind.notes.append(f"{half} weights are read as fp16 in the file: for the task their stored numbers are rounded")
    return found, ""
