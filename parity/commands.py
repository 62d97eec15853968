"""`parity` and `eval`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from weights_bridge.compare import GateReport
from weights_bridge.console import FiniteFloat, Output, command
from weights_bridge.errors import BudgetMissedError, counted
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_version import SENTIS_VERSION


@command(
    "parity",
    examples=("parity runs/smollm2-135m-npc-commands", "parity --model smollm2-135m --edge a0"),
)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A model for gate A0, or a graph with --fixture.")
@click.option(
    "--fixture", type=click.Path(path_type=Path), help="An npz file with in:: and out:: tensors; b needs no out::."
)
@click.option(
    "--edge", type=click.Choice(["a0", "a", "b", "ab", "all"]), default="all", show_default=True, help="Which gates."
)
@click.option(
    "--sentis-dump", type=click.Path(path_type=Path), help="With b, ab: what the kit's harness wrote in Unity."
)
@click.option("--sentis", type=SENTIS_VERSION, help="With b, ab, --sequence: the package version.")
@click.option("--budget", type=FiniteFloat(min=0), help="With --fixture, --sequence, b and ab: the least dB.")
@click.option("--sequence", type=click.Path(path_type=Path), help="A TOML file: how a graph with state is driven.")
@click.option("--recorded", type=click.Path(path_type=Path), help="With --sequence: another loop's outputs, judged.")
@click.option("--record", type=click.Path(path_type=Path), help="With --sequence: write its reference as an npz file.")
@click.option("--localise", is_flag=True, help="Show agreement by depth and inside the graph, miss or not.")
@click.option("--self-test", is_flag=True, help="Plant known bugs in a copy and see whether gate A0 finds them.")
@click.option("--set", "overrides", multiple=True, metavar="adapter.KEY=VALUE", help="With --model: which adapter.")
@click.option("--out", type=click.Path(path_type=Path), help="With --model: a folder for the report and its picture.")
def parity(
    output: Output,
    run: Path | None,
    model: Path | None,
    fixture: Path | None,
    edge: str,
    sentis_dump: Path | None,
    sentis: str | None,
    sequence: Path | None,
    recorded: Path | None,
    record: Path | None,
    budget: float | None,
    localise: bool,
    self_test: bool,
    overrides: tuple[str, ...],
    out: Path | None,
) -> None:
    """Measure a run again: its files first, then gate A0 (MLX and torch) and edge A (torch and ONNX Runtime).

    With --model alone, gate A0 is measured on a model that has no run yet, with a made adapter. With --model and
    --fixture, one graph is measured against recorded outputs; with --sequence over a whole signal, its state carried.

    --edge b is ONNX Runtime and Sentis, ab the table of original, ONNX Runtime and Sentis on the same bytes. Sentis is
    predicted; with a folder that the kit's harness wrote in Unity it is measured.
    """
    from parity.verify import verify_run

    if sequence or recorded or record:
        from parity.sequences import command as sequences

        others = [run, fixture, sentis_dump, overrides, self_test, localise]
        sequences.check_words(sequence, model, recorded, record, alone=not any(others))
        assert sequence is not None
        if record is not None:
            sequences.record_command(output, sequence, record)
        elif model is not None:
            asked = sequences.Asked(recorded, budget, sentis or "2.6", out)
            _answer(output, [sequences.sequence_report(output, model, sequence, asked)], localise)
        return
    if (run is None) == (model is None):
        raise click.UsageError("give a run folder, or --model")
    if run is not None and (fixture or overrides or out):
        raise click.UsageError("--fixture, --set and --out go with --model")
    if edge in ("b", "ab"):
        from parity.triple.command import answer_triple
        from parity.triple.of_run import EDGES_ASKED, Options

        if self_test or localise:
            raise click.UsageError("--edge b and ab find the place by themselves where an edge misses")
        options = Options(EDGES_ASKED[edge], sentis, sentis_dump, budget)
        answer_triple(output, run, model, fixture, options, out)
        return
    if sentis_dump is not None or sentis is not None:
        raise click.UsageError("--sentis-dump and --sentis go with --edge b or ab")
    if model is not None and model.suffix == ".onnx" and fixture is None:
        raise click.UsageError("a graph is measured on a fixture: give --fixture")
    if fixture is None and model is not None and edge == "a":
        raise click.UsageError("edge A needs a graph: give a run folder, or a graph and a fixture")
    if self_test and fixture is not None:
        raise click.UsageError("--self-test plants bugs in a run or a model, not in a graph")
    if self_test:
        _self_test(output, run, model, overrides)
    elif run is not None:
        _answer(output, verify_run(RunFolder.existing(run), edge, localised=localise, say=output.story), localise)
    elif fixture is not None:
        assert model is not None
        _answer(output, [_fixture_report(model, fixture, budget)], localise)
    else:
        assert model is not None
        _answer(output, [_model_report(output, model, overrides, out)], localise)


def _model_report(output: Output, model: Path, overrides: tuple[str, ...], out: Path | None) -> GateReport:
    from mlx_sentis.catalogue import resolve_model
    from parity.a0_model import measure_a0_of_model
    from parity.a0_tables import draw_depth
    from weights_bridge.files import write_json
    from weights_bridge.settings import resolve

    settings = resolve(overrides=overrides).settings
    folder = resolve_model(str(model), output.story)
    output.story(f"measuring gate A0 of {folder.name}: a made {settings.adapter.type} adapter, rows of ours")
    report = measure_a0_of_model(folder, settings.adapter)
    if out is not None:
        write_json(out / "a0.json", report.as_json())
        draw_depth(report.as_json(), out / "a0.png")
    return report


def _self_test(output: Output, run: Path | None, model: Path | None, overrides: tuple[str, ...]) -> None:
    from mlx_sentis.catalogue import resolve_model
    from parity.self_test import require_caught, self_test_of_model, self_test_of_run, trials_table
    from weights_bridge.settings import resolve

    if run is not None:
        trials = self_test_of_run(RunFolder.existing(run), output.story)
    else:
        folder = resolve_model(str(model), output.story)
        trials = self_test_of_model(folder, resolve(overrides=overrides).settings.adapter, output.story)
    document = {"passed": all(trial.caught is not False for trial in trials), "trials": [asdict(t) for t in trials]}
    output.answer("self-test", document, trials_table(trials))
    require_caught(trials)


def _fixture_report(model: Path, fixture: Path, budget: float | None) -> GateReport:
    from parity.budgets import load_budgets
    from parity.contracts import contract_beside
    from parity.edge_a import measure_fixture

    architecture = contract_beside(model).get("architecture", "default")
    return measure_fixture(model, fixture, load_budgets(architecture).edge_a_db if budget is None else budget)


def _answer(output: Output, reports: list[GateReport], localise: bool) -> None:
    from parity.a0_tables import columns_text, depth_text
    from parity.tables import gates_table, inside_table

    text = gates_table(reports)
    for report in reports:
        if report.facts.get("columns"):
            text += f"\n\n{columns_text(report.facts)}"
            if localise or "each_layer_alone" in report.facts:
                text += f"\n\n{depth_text(report.facts)}"
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
        hint = "the table shows the worst, --json lists every result"
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
