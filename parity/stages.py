"""The stages of a run, each a function of the run folder; `python -m parity.stages NAME RUN` runs one in a process.

Conversion comes first: the export is proven on base weights before a minute of training is spent.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weights_bridge.errors import BudgetMissedError, InterruptedCommandError, StageError
from weights_bridge.files import read_json, read_jsonl, write_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings, resolve

Say = Callable[[str], None]
SAID_AXES = ("function_selection", "whole_call", "out_of_scope_rejection", "format_validity")


def recipe(run: RunFolder, settings: Settings, say: Say, bar: bool = False) -> None:
    """Read the model's own facts, and look whether the data can be read."""
    from mlx_sentis.catalogue import resolve_model
    from mlx_sentis.model_card import licence_in_words
    from mlx_sentis.prepare.run import look_at_data
    from mlx_sentis.recipe import make_recipe
    from mlx_sentis.training.adapters import require_targets
    from mlx_sentis.training.batches import require_batch
    from mlx_sentis.training.idle_settings import require_agreeing
    from weights_bridge.model_folder import open_model_folder

    require_agreeing(settings)
    folder = resolve_model(settings.model.name, say)
    with run.stage("recipe", [folder / "config.json"]) as stage:
        found = make_recipe(folder)
        found["model"]["name"] = settings.model.name
        # conversion takes minutes: faults of settings and data come first
        if not settings.train.full:
            require_targets(open_model_folder(folder), settings.adapter)
        rows = look_at_data(settings.data.source, found, settings.data, bar=bar)
        require_batch(rows["train"], settings.train)
        write_json(run.path("recipe.json"), found)
        stage.wrote(run.path("recipe.json"))
    say(f"{found['architecture']}, {found['constants']['layers']} layers; licence: {licence_in_words(found)}")


def scan(run: RunFolder, settings: Settings, say: Say) -> None:
    """Ask what Sentis will say of the model before any work."""
    from converters.scan import scan as find

    model = Path(read_json(run.path("recipe.json"))["model"]["path"])
    with run.stage("scan", [run.path("recipe.json")]) as stage:
        findings = find(model, settings.export.sentis)
        write_json(run.path("scan.json"), {"schema": "mlx-sentis/scan/1", "findings": [f.as_json() for f in findings]})
        stage.wrote(run.path("scan.json"))
    refuse_bad(findings, str(model), settings.export.sentis)
    say(f"{len(findings)} findings, none that stops Sentis {settings.export.sentis}")


def refuse_bad(findings: list[Any], what: str, sentis: str) -> None:
    """Raise when a finding would stop Sentis or make it compute something else."""
    bad = [finding for finding in findings if finding.blocking]
    if bad:
        lines = "".join(f"\n  {finding}" for finding in bad[:5])
        raise BudgetMissedError(
            f"{what}: {len(bad)} stop Sentis {sentis}:{lines}", hint="`mlx-sentis fix --list` names what is mended"
        )


def export(run: RunFolder, settings: Settings, say: Say) -> None:
    """Export the base weights."""
    from converters import route
    from converters.export import export_model
    from converters.scan import scan as find
    from weights_bridge.model_folder import open_model_folder

    model = Path(read_json(run.path("recipe.json"))["model"]["path"])
    graph, contract = run.path("onnx", "base.onnx"), run.path("onnx", "contract.json")
    chosen = route.choose(model)
    say(str(chosen))
    with run.stage("export", open_model_folder(model).weight_files()) as stage:
        export_model(model, graph, settings.export, contract, path=chosen.as_json())
        stage.wrote(graph, contract)
        findings = find(graph, settings.export.sentis)
        stage.facts |= {"bytes": graph.stat().st_size, "findings": [finding.as_json() for finding in findings]}
        stage.facts["path"] = chosen.as_json()
    say(f"{graph.stat().st_size / 1e6:.1f} MB, opset {settings.export.opset}")


def edge_a_base(run: RunFolder, settings: Settings, say: Say) -> None:
    """Prove the export on the base weights."""
    from mlx_sentis.probes import probe_rows

    recipe = read_json(run.path("recipe.json"))
    _edge_a(run, "base", probe_rows(Path(recipe["model"]["path"])), say)


def prepare(run: RunFolder, settings: Settings, say: Say, bar: bool = False) -> None:
    """Shape the data."""
    from mlx_sentis.prepare.run import run_prepare

    facts = run_prepare(settings.data.source, settings.model.name, run.root, settings.data, say=say, bar=bar)
    say(", ".join(f"{one['rows']} {name}" for name, one in facts["splits"].items()))


def train(run: RunFolder, settings: Settings, say: Say, progress: str = "stdout", trackers: Sequence[str] = ()) -> None:
    """Train the adapter."""
    from mlx_sentis.training.reporters import reporter
    from mlx_sentis.training.sinks import sinks_on
    from mlx_sentis.training.stage import train_run

    # what a kill left unfinished goes on: exactness makes it the same as starting over
    told = [*sinks_on(progress, say), *(reporter(name, run.root, settings, say) for name in trackers)]
    figures = train_run(run, settings, told, say, resume="if-unfinished")
    say(f"loss {figures['first_loss']:.3f} → {figures['last_loss']:.3f}, best after update {figures['best_step']}")


def bridge(run: RunFolder, settings: Settings, say: Say) -> None:
    """Merge the adapter and measure gate A0."""
    from parity.bridge import bridge_run

    report = bridge_run(run, settings.parity, "best", say)
    forward, backward = report.worst_db("forward"), report.worst_db("backward")
    say(f"gate A0 passed: forward {forward:.1f} dB, backward {backward:.1f} dB at the worst")


def swap(run: RunFolder, settings: Settings, say: Say) -> None:
    """Put the tuned weights into the proven graph."""
    from converters.swap import swap_run

    facts = swap_run(run)
    say(f"{facts['model']}: same topology")


def fix(run: RunFolder, settings: Settings, say: Say) -> None:
    """Mend what Sentis would misread in the graph; base and tuned weights keep the same graph."""
    from converters.fix import fix_model
    from converters.scan import scan as find

    graphs = [run.path("onnx", name) for name in ("model.onnx", "base.onnx")]
    with run.stage("fix", graphs) as stage, tempfile.TemporaryDirectory(prefix=".mended-", dir=run.root) as work:
        mended = [Path(work) / graph.name for graph in graphs]
        report = fix_model(graphs[0], mended[0], sentis=settings.export.sentis)
        changed = sum(row["changed"] for row in report["passes"])
        if changed:
            fix_model(graphs[1], mended[1], sentis=settings.export.sentis)
            for new, graph in zip(mended, graphs, strict=True):
                new.replace(graph)
        write_json(run.path("fix.json"), report)
        stage.wrote(run.path("fix.json"), *(graphs if changed else []))
    refuse_bad(find(graphs[0], settings.export.sentis), str(graphs[0]), settings.export.sentis)
    say(f"{changed} nodes changed by {len(report['passes'])} passes; the scan for {settings.export.sentis} is clean")


def edge_a(run: RunFolder, settings: Settings, say: Say) -> None:
    """Measure edge A on the tuned weights."""
    _edge_a(run, "tuned", None, say)


def _edge_a(run: RunFolder, side: str, rows: list[dict[str, Any]] | None, say: Say) -> None:
    from parity.bridge import require
    from parity.verify import edge_a_of_run

    graph = run.path("onnx", "base.onnx" if side == "base" else "model.onnx")
    target = run.path("parity", "a-base.json" if side == "base" else "a.json")
    fixtures = run.path("onnx", "fixtures") if side == "tuned" else None
    inputs = [graph, run.path("onnx", "contract.json"), *([run.path("prompt_contract.json")] if fixtures else [])]
    with run.stage(f"edge-a-{side}", inputs) as stage:
        report = edge_a_of_run(run, side, rows=rows, fixtures_to=fixtures)
        write_json(target, report.as_json())
        stage.wrote(target, *([fixtures] if fixtures else []))
        stage.facts |= {"passed": report.passed, "worst_db": report.worst_db()}
    require(report, f"edge A ({side} weights)", f"see {target}; `mlx-sentis parity RUN --localise` names the module")
    say(f"edge A passed: {report.worst_db() or 999:.1f} dB at the worst")


def edge_b(run: RunFolder, settings: Settings, say: Say) -> None:
    """Predict edge B: what Sentis computes with the tuned weights."""
    from parity.triple.of_run import predict_edge_b

    predict_edge_b(run, settings.export.sentis, say)


def evaluate(run: RunFolder, settings: Settings, say: Say) -> None:
    """Score the held-out rows before and after, choose the gate on the calibration rows."""
    from parity.eval_words import axis_line, closing_lines, verdict_word
    from parity.evaluate import evaluate_run

    run.require_trained_data()
    if not any(row["expect"] for row in read_jsonl(run.path("data", "holdout.jsonl"))):
        say("not scored: no held-out row says which call is right (free text has no score)")
        return
    document = evaluate_run(run, settings)
    for axis in SAID_AXES:
        before, after = (axis_line(document[side][axis]) for side in ("before", "after"))
        say(f"{axis.replace('_', ' ')}: {before} → {after}, {verdict_word(document['verdicts'][axis])}")
    for line in closing_lines(document):
        say(line)


def report(run: RunFolder, settings: Settings, say: Say) -> None:
    """Write report and plots."""
    from parity.report import write_report

    write_report(run)
    say(f"{run.path('parity', 'report.md')}")


STAGES: dict[str, Callable[..., None]] = {
    "recipe": recipe,
    "scan": scan,
    "export": export,
    "edge-a-base": edge_a_base,
    "prepare": prepare,
    "train": train,
    "bridge": bridge,
    "swap": swap,
    "fix": fix,
    "edge-a": edge_a,
    "edge-b": edge_b,
    "eval": evaluate,
    "report": report,
}
TOKENIZER_ONLY = ("recipe", "prepare", "train")  # what these want of transformers does without torch


def hide_torch() -> None:
    """Keep transformers from importing torch where it finds it: three seconds and 230 MB a process, for nothing."""
    import mlx_sentis.training  # noqa: F401  # MLX's fast BLAS may be torch's own library, found by torch's name

    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]


READ_ROWS = ("recipe", "prepare")


def main(name: str, root: str, progress: str, quiet: str, *trackers: str) -> int:
    """Run one stage in this process; a `StageError` becomes a line on stderr and its exit code."""
    run = RunFolder(Path(root))

    def say(text: str) -> None:
        if quiet != "quiet":
            print(f"  {text}", file=sys.stderr, flush=True)

    settings = resolve(file=run.path("config.toml")).settings
    try:
        extra: dict[str, Any] = {"progress": progress, "trackers": trackers} if name == "train" else {}
        if name in READ_ROWS:
            extra["bar"] = quiet != "quiet" and progress != "off"  # on stderr, as `prepare` itself has it
        STAGES[name](run, settings, say, **extra)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # the terminal told the pipeline as well, which says where to go on
        return InterruptedCommandError.exit_code
    return 0


if __name__ == "__main__":
    if sys.argv[1] in TOKENIZER_ONLY:
        hide_torch()
    sys.exit(main(*sys.argv[1:]))
