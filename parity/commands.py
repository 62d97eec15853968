"""`parity` and `eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weights_bridge.compare import GateReport
from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, counted
from weights_bridge.run_folder import RunFolder


@command(
    "parity",
    examples=("parity runs/demo", "parity --model model.onnx --fixture fixtures/train-0007.npz --localise"),
)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A graph to measure on its own, with --fixture.")
@click.option("--fixture", type=click.Path(path_type=Path), help="An npz file with in:: and out:: tensors.")
@click.option("--edge", type=click.Choice(["a0", "a", "all"]), default="all", show_default=True, help="Which gates.")
@click.option("--budget", type=float, help="With --fixture: the least PSNR in dB that passes.")
@click.option("--localise", is_flag=True, help="List every probed tensor inside the graph, miss or not.")
def parity(
    output: Output,
    run: Path | None,
    model: Path | None,
    fixture: Path | None,
    edge: str,
    budget: float | None,
    localise: bool,
) -> None:
    """Measure a run again: its files first, then gate A0 (MLX and torch) and edge A (torch and ONNX Runtime).

    With --model and --fixture, one graph is measured against recorded outputs.
    """
    from parity.verify import verify_run

    if (run is None) == (model is None) or (model is None) != (fixture is None):
        raise click.UsageError("give a run folder, or --model together with --fixture")
    if run is not None:
        reports = verify_run(RunFolder.existing(run), edge, localised=localise, say=output.story)
    else:
        assert model is not None and fixture is not None
        reports = [_fixture_report(model, fixture, budget)]
    _answer(output, reports, localise)


def _fixture_report(model: Path, fixture: Path, budget: float | None) -> GateReport:
    from parity.budgets import load_budgets
    from parity.edge_a import measure_fixture
    from weights_bridge.files import read_json

    beside = model.with_name("contract.json")
    architecture = read_json(beside)["architecture"] if beside.is_file() else "default"
    return measure_fixture(model, fixture, load_budgets(architecture).edge_a_db if budget is None else budget)


def _answer(output: Output, reports: list[GateReport], localise: bool) -> None:
    from parity.tables import gates_table, inside_table

    text = gates_table(reports)
    if localise:
        text += "".join(f"\n\n{inside_table(report)}" for report in reports if report.facts.get("localised"))
    failures = [(report.gate, result) for report in reports for result in report.failures]
    document: dict[str, Any] = {"passed": not failures, "gates": [report.as_json() for report in reports]}
    output.answer("parity", document, text)
    if failures:
        first_of_gate = dict(reversed(failures))
        lines = [
            f"\n  {gate}: {first.tensor}: {first.reason} at {first.where or 'no place'}"
            + (f" ({first.detail})" if first.detail else "")
            for gate, first in reversed(first_of_gate.items())
        ]
        hint = "the table above lists every failure, worst first"
        raise BudgetMissedError(
            f"{counted(len(failures), 'result')} failed; the first of each gate:{''.join(lines)}", hint=hint
        )


@command("eval", examples=("eval runs/demo", "eval runs/demo --runner mlx --rows 20"))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--runner",
    type=click.Choice(["onnx", "mlx"]),
    default="onnx",
    show_default=True,
    help="What answers: the exported graphs in ONNX Runtime, or the directories they come from in MLX.",
)
@click.option("--baseline", is_flag=True, help="The base model only, into eval/baseline.json.")
@click.option("--rows", type=click.IntRange(min=0), help="The first N held-out rows; 0 is all.")
def evaluate(output: Output, run: Path, runner: Any, baseline: bool, rows: int | None) -> None:
    """Answer the held-out rows before and after the fine-tune, and score each axis by itself.

    The calibration rows decide the gate for the runtime, eval/gate.json; held-out rows never do.
    """
    from parity.eval_words import closing_lines
    from parity.evaluate import evaluate_run
    from parity.report import axes_table
    from parity.verify import settings_of

    folder = RunFolder.existing(run)
    settings = settings_of(folder)
    document = evaluate_run(folder, settings, runner=runner, baseline=baseline, rows=rows, quiet=output.quiet)
    answer = {key: value for key, value in document.items() if key != "schema"}
    text = "\n".join([axes_table(document), "", *closing_lines(document)]).rstrip()
    output.answer("eval", answer, text)
