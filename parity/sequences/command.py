"""`parity --sequence`: what the command does with a sequence file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from parity.fixtures import read_outputs
from parity.sequences.acceptance import Measured, Side, measure_sequence
from parity.sequences.levels import step_levels
from parity.sequences.picture import draw_sequence
from parity.sequences.reference import record
from parity.sequences.spec import SequenceSpec, read_spec
from weights_bridge.compare import Array, GateReport
from weights_bridge.console import Output
from weights_bridge.errors import StageError
from weights_bridge.files import write_json, write_text

WIDTH = 96  # characters of the terminal's line of steps


def record_command(output: Output, sequence: Path, target: Path) -> None:
    """Run the sequence file's TorchScript reference over its WAV file and keep both.

    Raises:
        StageError: no such reference, or it names no output.
    """
    spec = read_spec(sequence)
    if len(spec.outputs) != 1:
        hint = 'write outputs = ["NAME"] with the graph\'s output that the reference stands for'
        raise StageError(f"{sequence}: outputs: found {len(spec.outputs)}, wanted one to record", hint=hint)
    if target.suffix != ".npz":
        raise StageError(f"{target}: wanted a name that ends in .npz", hint="--record FILE.npz")
    passport = record(spec, spec.outputs[0], target)
    written = f"{target}: {passport['steps']} steps of {spec.reference.name if spec.reference else ''}"
    output.answer("sequence-record", {key: value for key, value in passport.items() if key != "schema"}, written)


@dataclass(frozen=True)
class Asked:
    """What the command was asked beside graph and sequence file.

    Attributes:
        recorded: another loop's outputs, judged instead of our own loop's.
        budget_db: what every step must reach; None takes the budget file's.
        sentis: the package version to predict for.
        out: a folder for report and picture.
    """

    recorded: Path | None = None
    budget_db: float | None = None
    sentis: str = "2.6"
    out: Path | None = None


def sequence_report(output: Output, model: Path, sequence: Path, asked: Asked) -> GateReport:
    """Measure a graph over a sequence, say it step by step, and write report and picture where they are asked for."""
    from converters.facts import facts
    from parity.budgets import load_budgets

    facts(asked.sentis)  # an unknown version is told before anything is measured
    spec = read_spec(sequence)
    budget = load_budgets("default").sequence_db if asked.budget_db is None else asked.budget_db
    heard, given = ({}, None) if asked.recorded is None else _recording(asked.recorded, spec)
    measured = measure_sequence(model, spec, budget, recorded=given, heard=heard.get("signal"), sentis=asked.sentis)
    if (out := asked.out) is not None:
        write_json(out / "sequence.json", measured.report.as_json())
        write_text(out / "sequence.md", markdown(measured))
        draw_sequence(measured, out / "sequence.png")
    for line in step_lines(measured):
        output.story(line)
    return measured.report


def _recording(path: Path, spec: SequenceSpec) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return inputs, where it has any, and outputs of another loop: an npz file, or raw numbers of the one output.

    Raises:
        StageError: it cannot be read, or holds no whole numbers.
    """
    if path.suffix != ".bin":
        heard, found = read_outputs(path)
        if others := sorted(heard.keys() - {"signal"}):
            raise StageError(f"{path}: found in::{others[0]}, wanted in::signal or no inputs", hint="record it again")
        return heard, found
    if len(spec.outputs) != 1:
        hint = 'write outputs = ["NAME"], or record an npz file'
        raise StageError(f"{spec.path}: outputs: found {len(spec.outputs)}, wanted one for {path.name}", hint=hint)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StageError(f"{path}: cannot be read: {error.strerror}", hint="--recorded FILE.npz or FILE.bin") from None
    if len(data) % 4:
        raise StageError(f"{path}: {len(data)} bytes, no whole float32 numbers", hint="write little-endian float32")
    return {}, {spec.outputs[0]: np.frombuffer(data, "<f4")}


def step_lines(measured: Measured) -> list[str]:
    """Return one line of steps per side: `.` passes, `x` is below the budget; what was not predicted says why."""
    lines = []
    for side in measured.sides:
        for name, wanted in measured.reference.items():
            marks = _marks(side, name, measured)
            step = -(-len(marks) // WIDTH) or 1
            shown = "".join("x" if "x" in marks[at : at + step] else "." for at in range(0, len(marks), step))
            each = f", {step} steps a mark" if step > 1 else ""
            lines.append(f"{side.name} / {name}: {len(wanted)} steps{each}\n  {shown}")
    said = measured.report.facts.get("predicted", {})
    if said.get("verdict") == "not predicted":
        lines.append(f"Sentis {said['version']}: not predicted: {said['reason']}")
    return lines


def _marks(side: Side, name: str, measured: Measured) -> str:
    found, wanted = side.outputs.get(name), measured.reference[name]
    if found is None or found.size != wanted.size:
        return ""
    levels = step_levels(wanted, found)
    return "".join("." if level is None or level >= measured.budget_db else "x" for level in levels)


def markdown(measured: Measured) -> str:
    """Return the report as a page."""
    facts = measured.report.facts
    lines = [
        f"# {facts['model']} over {facts['sequence']}",
        "",
        f"{'Every step passed' if measured.report.passed else 'Not every step passed'}: against {facts['reference']}, "
        f"chunk {facts['chunk']}, context {facts['context']}, state "
        f"{', '.join(f'{output} → {given}' for given, output in facts['state'].items()) or 'none'}; "
        f"budget {facts['budget_db']:g} dB a step.",
        "",
        "| side | verdict | worst step | reason | where |",
        "|---|---|---|---|---|",
    ]
    for one in measured.report.results:
        worst = "exact" if one.reason == "exact" else "–" if one.psnr_db is None else f"{one.psnr_db:.1f} dB"
        cells = (one.tensor, "pass" if one.passed else "FAIL", worst, one.reason, one.where)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n{one.tensor}: {one.detail}" for one in measured.report.failures if one.detail]
    if (said := facts.get("predicted", {})).get("verdict") == "not predicted":
        lines += ["", f"Sentis {said['version']}: not predicted: {said['reason']}"]
    return "\n".join([*lines, "", "![step by step](sequence.png)", ""])


def check_words(
    sequence: Path | None, model: Path | None, recorded: Path | None, record_to: Path | None, *, alone: bool
) -> None:
    """Refuse flags that do not go together.

    Raises:
        UsageError: which.
    """
    if sequence is None:
        raise click.UsageError("--recorded and --record go with --sequence")
    if not alone:
        raise click.UsageError("--sequence goes with --model, --recorded, --record, --budget, --sentis and --out only")
    if (model is None) == (record_to is None):
        raise click.UsageError("--sequence measures a graph (--model M.onnx) or records its reference (--record F.npz)")
    if record_to is not None and recorded is not None:
        raise click.UsageError("--recorded is measured, --record writes: give one of them")
