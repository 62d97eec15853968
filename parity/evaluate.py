"""Evaluation: held-out rows before and after the fine-tune on separated axes, and the gate for the runtime.

The base and the tuned model answer the held-out rows; the tuned one answers the calibration rows as well, and the gate
is chosen on those alone (`parity/eval_gate.py`). What it does to held-out rows is measured afterwards, as a report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.evaluation.conduct import amended, conduct_of, remarks
from mlx_sentis.evaluation.generator import Answered, Generator, answers
from mlx_sentis.evaluation.scoring import Answer, arguments_by_name, read_answer, score
from mlx_sentis.evaluation.verdicts import verdicts
from parity.eval_gate import Calibration, gate_of, read_calibration
from parity.eval_words import eval_log, wording_of
from parity.runners.generators import Runner, Side, files_of, open_generator
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_json, write_text
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

SCHEMA = "mlx-sentis/axes/1"
SIDES: dict[str, Side] = {"before": "base", "after": "tuned"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What one model said to a set of rows.

    Attributes:
        answered: rows with their texts.
        read: the texts as answers, in the same order.
    """

    answered: Sequence[Answered]
    read: Sequence[Answer]

    @property
    def pairs(self) -> list[tuple[Row, Answer]]:
        return [(one.row, answer) for one, answer in zip(self.answered, self.read, strict=True)]

    @property
    def margins(self) -> list[float | None]:
        return [one.margin for one in self.answered]

    def part(self, first: int, stop: int | None = None) -> Said:
        """Return what was said to some of the rows."""
        return Said(self.answered[first:stop], self.read[first:stop])


def evaluate_run(
    run: RunFolder,
    settings: Settings,
    *,
    runner: Runner = "onnx",
    baseline: bool = False,
    rows: int | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Answer the held-out rows with the base and the tuned model, score and compare; choose the gate.

    Args:
        run: with `data/`, and `onnx/` or `merged/`.
        settings: `eval.max_new_tokens`, `eval.rows`.
        runner: what answers, `onnx` (the exported graphs) or `mlx` (the directories they come from).
        baseline: the base model only, into `eval/baseline.json`.
        rows: the first N held-out rows only; None takes `eval.rows`, 0 is all.
        quiet: no progress bar.

    Returns:
        What was written to `eval/axes.json` (or `eval/baseline.json`): per side counts, shares and 95 % intervals,
        verdicts per axis, remarks, the gate's effect, and every row's texts.

    Raises:
        StageError: a file is missing or altered, the data is not what was trained, or there is no held-out row.
    """
    if not baseline:
        run.require_trained_data()
    sides: dict[str, Side] = {"before": "base"} if baseline else SIDES
    inputs = [run.path("recipe.json"), run.path("data", "holdout.jsonl"), run.path("data", "dataset.json")]
    inputs += [path for side in sides.values() for path in files_of(run, runner, side)]
    asked_too = run.path("data", "calibration.jsonl")
    if not baseline and (asked_too.exists() or run.is_recorded(asked_too)):
        inputs.append(asked_too)
    with run.stage("baseline" if baseline else "eval", list(dict.fromkeys(inputs))) as stage:
        held_out = held_out_rows(run, settings.eval.rows if rows is None else rows)
        calibration = Calibration([]) if baseline else read_calibration(run)
        said: dict[str, Said] = {}
        for name, side in sides.items():
            more = calibration if name == "after" else Calibration([])
            said[name], stage.facts[name] = _ask(run, settings, (runner, side), held_out, more, f"eval {name}", quiet)
        document = scored_document(runner, held_out, {name: one.part(0, len(held_out)) for name, one in said.items()})
        stage.facts["rows"] = len(held_out)
        if baseline:
            _write(stage, run.path("eval", "baseline.json"), document)
            return document
        document["wording"] = wording_of(read_json(run.path("data", "dataset.json")))
        document |= _gate(run, stage, calibration, said["after"], len(held_out), runner)
        document["rows"] = document.pop("rows")  # the long part last
        _write(stage, run.path("eval", "axes.json"), document)
        write_text(run.path("eval", "eval_log.md"), eval_log(document))
        stage.wrote(run.path("eval", "eval_log.md"))
    return document


def _write(stage: Any, path: Path, document: dict[str, Any]) -> None:
    write_json(path, document)
    stage.wrote(path)


def held_out_rows(run: RunFolder, count: int) -> list[Row]:
    """Return the first `count` held-out rows that have an expected answer; 0 is all.

    Raises:
        StageError: there is none.
    """
    path = run.path("data", "holdout.jsonl")
    rows = [row for row in read_jsonl(path) if row["expect"] is not None]
    if not rows:
        raise StageError(f"{path}: no row has an expected answer", hint="give rows with a call, or with call null")
    return rows[:count] if count else rows


def _ask(
    run: RunFolder,
    settings: Settings,
    model: tuple[Runner, Side],
    held_out: Sequence[Row],
    calibration: Calibration,
    label: str,
    quiet: bool,
) -> tuple[Said, dict[str, Any]]:
    """Let one model answer the held-out rows, then the calibration rows; the model is freed when this returns."""
    rows = [*held_out, *calibration.rows]
    return ask(run, settings, open_generator(run, *model), rows, label, quiet, calibration.refusal_id)


def ask(
    run: RunFolder,
    settings: Settings,
    generator: Generator,
    rows: Sequence[Row],
    label: str,
    quiet: bool,
    refusal_id: int | None = None,
) -> tuple[Said, dict[str, Any]]:
    """Let a model answer rows of a run.

    Args:
        run: for its recipe, tools and tokenizer.
        settings: `eval.max_new_tokens`.
        generator: the model.
        rows: prepared rows.
        label: of the progress bar.
        quiet: no progress bar.
        refusal_id: the first token of a refusal; with it each answer gets its margin.

    Returns:
        What was said, and counts and seconds.
    """
    from tqdm import tqdm

    recipe, dataset = read_json(run.path("recipe.json")), read_json(run.path("data", "dataset.json"))
    started = time.monotonic()
    stream = answers(
        generator,
        rows,
        text_decoder(run, recipe),
        max_new_tokens=settings.eval.max_new_tokens,
        stop_ids=recipe["stop_ids"],
        shared_tokens=dataset["shared_prefix_tokens"],
        refusal_id=refusal_id,
    )
    found = list(tqdm(stream, desc=label, total=len(rows), unit="row", disable=quiet or None))
    read_one = reader_of(recipe, dataset)
    read = [read_one(one.row, one.text) for one in found]
    facts: dict[str, Any] = {"rows": len(rows), "new_tokens": sum(one.new_tokens for one in found)}
    return Said(found, read), facts | {"seconds": round(time.monotonic() - started, 2)}


def reader_of(recipe: Mapping[str, Any], dataset: Mapping[str, Any]) -> Callable[[Row, str], Answer]:
    """Return what reads a row's text as an answer."""
    return lambda row, text: read_answer(text, _names(row.get("tools") or dataset["tools"]), recipe["tools"])


def _names(tools: Sequence[Mapping[str, Any]]) -> set[str]:
    return {tool.get("function", tool)["name"] for tool in tools}


def text_decoder(run: RunFolder, recipe: Mapping[str, Any]) -> Callable[[list[int]], str]:
    """Return ids to text, special tokens kept: one that does not belong there must be seen.

    Raises:
        StageError: no tokenizer.json beside the merged or the base model.
    """
    from tokenizers import Tokenizer

    places = [run.path("merged", "tokenizer.json"), Path(recipe["model"]["path"]) / "tokenizer.json"]
    file = next((path for path in places if path.is_file()), None)
    if file is None:
        raise StageError(f"{places[1]}: no tokenizer.json", hint="give a whole model directory")
    tokenizer = Tokenizer.from_file(str(file))
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def scored_document(runner: Runner, rows: Sequence[Row], said: Mapping[str, Said]) -> dict[str, Any]:
    """Return the scores of each side and, where there are two, the verdicts."""
    scored = {side: score(one.pairs) for side, one in said.items()}
    conduct = {side: conduct_of(one.pairs) for side, one in said.items()}
    document: dict[str, Any] = {"schema": SCHEMA, "runner": runner, "rows_scored": len(rows)}
    document |= {side: {name: axis.as_json() for name, axis in axes.items()} for side, axes in scored.items()}
    if "after" in scored:
        found = amended(verdicts(scored["before"], scored["after"]), conduct["before"], conduct["after"])
        document["verdicts"] = {verdict.axis: verdict.as_json() for verdict in found}
    document["remarks"] = remarks(conduct.get("before"), conduct.get("after"))
    document["conduct"] = {side: one.as_json() for side, one in conduct.items()}
    document["arguments"] = {side: _by_name(one) for side, one in said.items()}
    document["rows"] = [_row(row, at, said) for at, row in enumerate(rows)]
    return document


def _by_name(said: Said) -> dict[str, Any]:
    found = arguments_by_name(said.pairs)
    return {name: {kind: axis.as_json() for kind, axis in axes.items()} for name, axes in found.items()}


def _row(row: Row, at: int, said: Mapping[str, Said]) -> dict[str, Any]:
    sides = {side: {"text": one.answered[at].text, "kind": one.read[at].kind} for side, one in said.items()}
    return {"id": row["id"], "expect": row["expect"], **sides}


def _gate(
    run: RunFolder, stage: Any, calibration: Calibration, after: Said, held_out: int, runner: Runner
) -> dict[str, Any]:
    """Choose and write the gate, or take away an old one; return what `axes.json` says of both splits."""
    on_calibration, on_held_out = after.part(held_out), after.part(0, held_out)
    found: dict[str, Any] = {}
    if calibration.rows:
        axes = score(on_calibration.pairs)
        found["calibration"] = {name: axis.as_json() for name, axis in axes.items()}
    target = run.path("eval", "gate.json")
    decode = text_decoder(run, read_json(run.path("recipe.json")))
    gate, report = gate_of(run, calibration, on_calibration, on_held_out, decode)
    if gate is None:
        target.unlink(missing_ok=True)  # one of an earlier model must not be shipped with this one
    else:
        _write(stage, target, gate | {"runner": runner})
    return found | {"gate": report}
