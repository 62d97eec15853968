"""What `parity --edge b|ab` answers."""

from __future__ import annotations

from pathlib import Path

import click

from parity.triple.of_run import Options, triple_of_file, triple_of_run
from parity.triple.rows import Triple
from parity.triple.words import closing, text_of
from weights_bridge.compare import GateReport, GateResult
from weights_bridge.console import Output
from weights_bridge.errors import BudgetMissedError, counted
from weights_bridge.run_folder import RunFolder


def answer_triple(
    output: Output, run: Path | None, model: Path | None, fixture: Path | None, options: Options, out: Path | None
) -> None:
    """Measure the table of a run or of one graph, and say it.

    Raises:
        BudgetMissedError: an edge misses, is not predicted, or a file of the run is altered.
        StageError: something cannot be read.
    """
    altered: list[GateResult] = []
    if run is not None:
        folder = RunFolder.existing(run)
        triple, altered = triple_of_run(folder, options, output.story)
        if altered:
            what = f"{counted(len(altered), 'recorded file')} missing or altered"
            output.story(f"{what}: the old reports are kept")
    elif model is None or fixture is None:
        raise click.UsageError("edge B needs a graph and a fixture: give a run folder, or --model M.onnx and --fixture")
    else:
        triple = triple_of_file(model, fixture, options, output.story, out)
    integrity = [GateReport("integrity", altered)] if altered else []
    document = triple.as_json() | {"passed": triple.passed and not altered}
    document["integrity"] = [result.as_json() for result in altered]
    output.answer("triple", document, "\n".join([*map(str, altered), text_of(triple)]))
    if not triple.passed or altered:
        raise _missed(triple, [*integrity, *triple.reports()])


def _missed(triple: Triple, reports: list[GateReport]) -> BudgetMissedError:
    lines = []
    for report in reports:
        if report.failures:
            first = report.failures[0]
            detail = f" ({first.detail})" if first.detail else ""
            lines.append(f"\n  {report.gate}: {first.tensor}: {first.reason}{detail}")
    hint = "the steps above say where to look" if triple.steps else "--json lists every result"
    return BudgetMissedError(f"{closing(triple)}; the first of each:{''.join(lines)}", hint=hint)
