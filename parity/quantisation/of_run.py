"""The preview of a run, or of one graph and one fixture: what is measured, where it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from converters.scan import scan
from parity.contracts import contract_beside
from parity.emulator.selection import WIDE_BYTES, Selection, selection
from parity.quantisation.choice import choose
from parity.quantisation.preview import Kind, measure_task, predicted_errors
from parity.quantisation.words import markdown, result_json
from parity.triple.of_run import DEFAULT_SENTIS, fixtures_of
from parity.verify import settings_of
from weights_bridge.errors import StageError
from weights_bridge.files import read_jsonl, read_object, write_json, write_text
from weights_bridge.run_folder import RunFolder

SCHEMA = "mlx-sentis/quantise/1"
QUANTISED = "OPERATOR.QUANTISED"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a user may choose.

    Attributes:
        kinds: of `KINDS`, in the order of the rule.
        sentis: package version; None takes the contract's, or 2.6.
        limit_bytes: what the weights may take.
        rows: the first N held-out rows; None takes `eval.rows`, 0 is all.
        task: whether the held-out rows are answered.
        quiet: no progress bar.
    """

    kinds: Sequence[str]
    sentis: str | None = None
    limit_bytes: int | None = None
    rows: int | None = None
    task: bool = True
    quiet: bool = False


def preview_run(run: RunFolder, options: Options, say: Say) -> dict[str, Any]:
    """Measure a run's tuned graph and write `parity/quantise.json` and `quantise.md`.

    Args:
        run: with `onnx/model.onnx`, its fixtures, and `data/` for the task.
        options: what is asked.
        say: hears what is being done.

    Returns:
        What was written.

    Raises:
        StageError: a part is missing or altered, or the graph does not import.
    """
    onnx, contract = run.path("onnx", "model.onnx"), run.path("onnx", "contract.json")
    if not onnx.is_file():
        raise StageError(f"{onnx}: no such file", hint="run `mlx-sentis swap` first")
    facts, fixtures = read_object(contract), fixtures_of(run)
    inputs = [onnx, contract, run.path("onnx", "fixtures")]
    why_not = _no_task(run, options, facts)
    if not why_not:
        run.require_trained_data()
        inputs += [run.path("recipe.json"), run.path("data", "holdout.jsonl"), run.path("data", "dataset.json")]
    with run.stage("quantise", inputs) as stage:
        chosen = _selection(onnx, options.sentis or facts.get("sentis", DEFAULT_SENTIS))
        kinds = predicted_errors(onnx, fixtures, options.kinds, chosen, say)
        rows = 0 if why_not else measure_task(run, settings_of(run), kinds, chosen, options.rows, options.quiet)
        tuned = "train" in run.manifest()["stages"]
        document = _document(onnx, chosen, kinds, options, fine_tuned=tuned, rows=rows, task_why_not=why_not)
        document["fixtures"] = list(fixtures)
        stage.facts["choice"] = document["choice"]["kind"]
        write_json(run.path("parity", "quantise.json"), {"schema": SCHEMA} | document)
        write_text(run.path("parity", "quantise.md"), markdown(document))
        stage.wrote(run.path("parity", "quantise.json"), run.path("parity", "quantise.md"))
    return document


def preview_file(onnx: Path, fixture: Path, options: Options, say: Say) -> dict[str, Any]:
    """Predict what the kinds cost one graph on one fixture; there is no task to ask.

    Raises:
        StageError: the graph or the fixture cannot be read, or the graph does not import.
    """
    contract = contract_beside(onnx)
    chosen = _selection(onnx, options.sentis or contract.get("sentis", DEFAULT_SENTIS))
    kinds = predicted_errors(onnx, {fixture.stem: fixture}, options.kinds, chosen, say)
    why_not = "a graph alone has no held-out rows; give a run folder"
    document = _document(onnx, chosen, kinds, options, fine_tuned=False, rows=0, task_why_not=why_not)
    return document | {"fixtures": [fixture.stem]}


def _no_task(run: RunFolder, options: Options, contract: Mapping[str, Any]) -> str:
    if not options.task:
        return "left out with --no-task"
    if contract.get("family") != "causal_lm":
        return f"family {contract.get('family')} has no held-out rows that a runner here answers"
    path = run.path("data", "holdout.jsonl")
    if not path.is_file():
        return "no data/holdout.jsonl"
    if all(row.get("expect") is None for row in read_jsonl(path)):
        return "no held-out row says which call is right (free text has no score)"
    return ""


def _selection(onnx: Path, sentis: str) -> Selection:
    """Return what is replaced; a model that is quantised already is refused with the reason."""
    findings = [finding for finding in scan(onnx, sentis) if finding.id == QUANTISED]
    if findings:
        what = f"{onnx}: {len(findings)} quantised operators, {findings[0].node!r} first: Sentis imports none of them"
        hint = "start from the float model and let ModelQuantizer quantise in Unity; `mlx-sentis fix` dequantises some"
        raise StageError(what, hint=hint)
    return selection(onnx, sentis)


def _document(
    onnx: Path,
    chosen: Selection,
    kinds: Mapping[str, Kind],
    options: Options,
    *,
    fine_tuned: bool,
    rows: int,
    task_why_not: str,
) -> dict[str, Any]:
    full_bytes = chosen.stored_bytes()
    return {
        "model": onnx.name,
        "sentis": chosen.sentis,
        "fine_tuned": fine_tuned,
        "chosen": {
            "count": len(chosen.chosen),
            "elements": chosen.elements,
            "by_layer": chosen.by_layer(),
            "source": chosen.source,
            "verified": chosen.verified,
        },
        "numbers": full_bytes // WIDE_BYTES,
        "fp32_bytes": full_bytes,
        "widest_bytes": chosen.widest_bytes,
        "limit_bytes": options.limit_bytes,
        "rows": rows,
        "task_why_not": task_why_not,
        "kinds": {name: _kind_json(kind) for name, kind in kinds.items()},
        "choice": asdict(choose(kinds, full_bytes, options.limit_bytes, fine_tuned)),
    }


def _kind_json(kind: Kind) -> dict[str, Any]:
    return {
        "stored_bytes": kind.stored_bytes,
        "worst": result_json(kind.worst),
        "worst_truncated": result_json(kind.worst_truncated),
        "why_not": kind.why_not,
        "changed": kind.changed,
        "regressed": kind.regressed,
        "task_why_not": kind.task_why_not,
        "notes": kind.notes,
        "errors": [result_json(one) for one in kind.errors],
        "task": kind.task,
    }
