"""Evaluation through the exported graph: held-out rows, before and after the fine-tune, on separated axes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.evaluation.generator import answers
from mlx_sentis.evaluation.scoring import Answer, read_answer, score
from mlx_sentis.evaluation.verdicts import Verdict, verdicts
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_json, write_text
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

SCHEMA = "mlx-sentis/axes/1"
BASE, TUNED = "base.onnx", "model.onnx"
SIDES = {"before": BASE, "after": TUNED}


def evaluate_run(
    run: RunFolder, settings: Settings, *, baseline: bool = False, rows: int | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Answer the held-out rows with the base and the tuned graph, score and compare.

    Args:
        run: with `onnx/` and `data/`.
        settings: `eval.max_new_tokens`, `eval.rows`.
        baseline: the base graph only, into `eval/baseline.json`.
        rows: the first N held-out rows only; None takes `eval.rows`, 0 is all.
        quiet: no progress bar.

    Returns:
        What was written to `eval/axes.json` (or `eval/baseline.json`): per side counts, shares and 95 % intervals,
        verdicts per axis, and every row's texts.

    Raises:
        StageError: a file is missing or altered, or there is no held-out row.
    """
    sides = {"before": BASE} if baseline else SIDES
    inputs = [run.path("recipe.json"), run.path("onnx", "contract.json"), run.path("data", "holdout.jsonl")]
    inputs += [run.path("data", "dataset.json"), *(run.path("onnx", name) for name in sides.values())]
    with run.stage("baseline" if baseline else "eval", inputs) as stage:
        chosen = _held_out(run, settings.eval.rows if rows is None else rows)
        document, facts = _measured(run, settings, sides, chosen, quiet)
        target = run.path("eval", "baseline.json" if baseline else "axes.json")
        write_json(target, document)
        stage.wrote(target)
        if not baseline:
            write_text(run.path("eval", "eval_log.md"), eval_log(document))
            stage.wrote(run.path("eval", "eval_log.md"))
        stage.facts |= facts
    return document


def _held_out(run: RunFolder, count: int) -> list[dict[str, Any]]:
    path = run.path("data", "holdout.jsonl")
    rows = [row for row in read_jsonl(path) if row["expect"] is not None]
    if not rows:
        raise StageError(f"{path}: no row has an expected answer", hint="give rows with a call, or with call null")
    return rows[:count] if count else rows


def _measured(
    run: RunFolder, settings: Settings, sides: Mapping[str, str], rows: Sequence[dict[str, Any]], quiet: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    texts: dict[str, list[str]] = {}
    facts: dict[str, Any] = {"rows": len(rows)}
    for side, name in sides.items():
        texts[side], facts[side] = _answered(run, settings, name, rows, side, quiet)
    read = {side: _read(run, rows, found) for side, found in texts.items()}
    scored = {side: score(zip(rows, found, strict=True)) for side, found in read.items()}
    document: dict[str, Any] = {"schema": SCHEMA, "rows_scored": len(rows)}
    document |= {side: {name: axis.as_json() for name, axis in axes.items()} for side, axes in scored.items()}
    if "after" in scored:
        compared = verdicts(scored["before"], scored["after"])
        document["verdicts"] = {verdict.axis: verdict.as_json() for verdict in compared}
    document["rows"] = [_row(row, at, texts, read) for at, row in enumerate(rows)]
    return document, facts


def _answered(
    run: RunFolder, settings: Settings, name: str, rows: Sequence[dict[str, Any]], side: str, quiet: bool
) -> tuple[list[str], dict[str, Any]]:
    from tqdm import tqdm

    from parity.runners.onnx_decoder import OnnxDecoder

    recipe, dataset = read_json(run.path("recipe.json")), read_json(run.path("data", "dataset.json"))
    decoder = OnnxDecoder(run.path("onnx", name), read_json(run.path("onnx", "contract.json")))
    started, counted = time.monotonic(), [0]
    stream = answers(
        decoder,
        rows,
        _counting(text_decoder(run, recipe), counted),
        max_new_tokens=settings.eval.max_new_tokens,
        stop_ids=recipe["stop_ids"],
        shared_tokens=dataset["shared_prefix_tokens"],
    )
    found = [text for _, text in tqdm(stream, desc=f"eval {side}", total=len(rows), unit="row", disable=quiet or None)]
    seconds = time.monotonic() - started
    return found, {"seconds": round(seconds, 2), "new_tokens": counted[0]}


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


def _counting(decode: Callable[[list[int]], str], counted: list[int]) -> Callable[[list[int]], str]:
    def counting(ids: list[int]) -> str:
        counted[0] += len(ids)
        return decode(ids)

    return counting


def _read(run: RunFolder, rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[Answer]:
    style = read_json(run.path("recipe.json"))["tools"]
    shared = read_json(run.path("data", "dataset.json"))["tools"]
    return [read_answer(text, _names(row.get("tools") or shared), style) for row, text in zip(rows, texts, strict=True)]


def _names(tools: Sequence[Mapping[str, Any]]) -> set[str]:
    return {tool.get("function", tool)["name"] for tool in tools}


def _row(
    row: Mapping[str, Any], at: int, texts: Mapping[str, list[str]], read: Mapping[str, list[Answer]]
) -> dict[str, Any]:
    sides = {side: {"text": texts[side][at], "kind": read[side][at].kind} for side in texts}
    return {"id": row["id"], "expect": row["expect"], **sides}


def eval_log(document: Mapping[str, Any]) -> str:
    """Return the held-out verdicts as Markdown: words per axis, no raw scores."""
    lines = [
        "# Held-out verdicts",
        "",
        f"{document['rows_scored']} rows, new phrasings; paired exact McNemar, p < 0.05.",
    ]
    lines += ["", "| axis | verdict |", "|---|---|"]
    lines += [f"| {axis.replace('_', ' ')} | {found['word']} |" for axis, found in document["verdicts"].items()]
    return "\n".join(lines) + "\n"


def regressed(document: Mapping[str, Any]) -> list[str]:
    """Return the axes that the fine-tune made worse."""
    return [axis for axis, found in document["verdicts"].items() if found["word"] == "regressed"]


def axis_line(axis: Mapping[str, Any]) -> str:
    """Return `52/60 · 87 % (76–93)`, or a dash when nothing was counted."""
    if not axis["of"]:
        return "–"
    shares = [round(100 * axis[key]) for key in ("share", "low", "high")]
    return f"{axis['right']}/{axis['of']} · {shares[0]} % ({shares[1]}–{shares[2]})"


def verdict_word(found: Mapping[str, Any] | Verdict) -> str:
    """Return the verdict of one axis with its p-value."""
    entry = found.as_json() if isinstance(found, Verdict) else found
    return entry["word"] if entry["p_value"] is None else f"{entry['word']} (p = {entry['p_value']:.2g})"
