"""Verifying a run folder again: first that its files are what was recorded, then the gates themselves.

An altered file is a failed result, not an excuse: what can still be measured is measured, so that the report names
the file and the layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.budgets import load_budgets
from weights_bridge.compare import GateReport, GateResult
from weights_bridge.errors import StageError, counted
from weights_bridge.files import read_json, read_jsonl, sha256_of, sha256_of_text, write_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings, resolve

EDGES = ("a0", "a", "all")


def settings_of(run: RunFolder) -> Settings:
    """Return the settings a run was made with; the defaults where it has no `config.toml`."""
    path = run.path("config.toml")
    return resolve(file=path if path.is_file() else None).settings


def integrity(run: RunFolder) -> list[GateResult]:
    """Return a failed result per recorded file that is gone or altered, inside the run and in its model directory."""
    found = run.altered()
    path = run.path("recipe.json")
    recipe = read_json(path) if path.is_file() else {}
    model = Path(recipe["model"]["path"]) if recipe else None
    found += template_results(recipe)
    recorded = {name: digest for entry in run.manifest()["stages"].values() for name, digest in entry["inputs"].items()}
    for name, digest in sorted(recorded.items()):
        file = Path(name)
        if model is None or not file.is_absolute() or not file.is_relative_to(model):
            continue
        label = f"file {file.name}"
        if not file.is_file():
            found.append(GateResult(label, False, "missing", where=name, detail="recorded, not there"))
        elif (now := sha256_of(file)) != digest:
            detail = f"sha256 found {now[:12]}…, recorded {digest[:12]}…"
            found.append(GateResult(label, False, "altered", where=name, detail=detail))
    return found


def template_results(recipe: dict[str, Any]) -> list[GateResult]:
    """Return a failed result when the chat template is no longer the one the recipe was made of."""
    wanted = recipe.get("template", {})
    if not wanted.get("file"):
        return []
    file = Path(recipe["model"]["path"]) / wanted["file"]  # an absolute file (--template) stays as it is
    if not file.is_file():
        return [GateResult("chat template", False, "missing", where=str(file), detail="named in recipe.json")]
    text = file.read_text(encoding="utf-8")
    if file.name == "tokenizer_config.json":
        stored = json.loads(text).get("chat_template")
        forms = {form["name"]: form["template"] for form in stored} if isinstance(stored, list) else {"default": stored}
        text = str(forms.get("default"))
    if (now := sha256_of_text(text)) == wanted["sha256"]:
        return []
    detail = f"sha256 found {now[:12]}…, recipe.json says {wanted['sha256'][:12]}…"
    return [GateResult("chat template", False, "altered", where=str(file), detail=detail)]


def verify_run(
    run: RunFolder, edge: str = "all", *, localised: bool = False, say: Callable[[str], None] = lambda text: None
) -> list[GateReport]:
    """Check a run's files and measure its gates again.

    Args:
        run: the folder.
        edge: `a0`, `a` (base and tuned, whichever is there) or `all`.
        localised: compare the graph's inside even when nothing is missed.
        say: hears what is being measured.

    Returns:
        `integrity` (only when something is wrong with a file), then one report per gate. When no file was altered,
        the reports also replace those in `parity/`.

    Raises:
        StageError: there is nothing to measure.
    """
    faults = integrity(run)
    plan = _plan(run, edge, localised)
    if not plan and not faults:
        raise StageError(f"{run.root}: nothing to measure yet for edge {edge}", hint="run `mlx-sentis export` first")
    reports = [GateReport("integrity", faults)] if faults else []
    if faults:
        what = f"{counted(len(faults), 'recorded file')} missing or altered"
        say(f"{what}: measuring what is there, keeping the old reports")
        return reports + [_attempt(name, measure, say) for name, _, measure in plan]
    inputs = [run.path(name) for name in ("recipe.json", "prompt_contract.json")]
    inputs += [run.path("onnx", name) for name in ("contract.json", "model.onnx")]
    # what an earlier call measured stays recorded: an older stage's hash of the same report would be wrong now
    earlier = run.manifest()["stages"].get("parity", {}).get("outputs", {})
    with run.stage("parity", [path for path in inputs if path.exists()]) as stage:
        stage.wrote(*(run.path(name) for name in earlier))
        for name, target, measure in plan:
            reports.append(_attempt(name, measure, say))
            write_json(target, reports[-1].as_json())
            stage.wrote(target)
    return reports


def _plan(run: RunFolder, edge: str, localised: bool) -> list[tuple[str, Path, Callable[[], GateReport]]]:
    """Return (what, report file, how to measure) for every gate that the folder has the parts of."""
    plan: list[tuple[str, Path, Callable[[], GateReport]]] = []
    if edge in ("a0", "all") and run.path("merged").is_dir():
        plan.append(("gate A0", run.path("parity", "a0.json"), lambda: _measure_a0(run)))
    if edge in ("a", "all"):
        for side, file in (("base", "a-base.json"), ("tuned", "a.json")):
            if run.path("onnx", "base.onnx" if side == "base" else "model.onnx").is_file():
                measure = _edge_a_of(run, side, localised)
                plan.append((f"edge A ({side} weights)", run.path("parity", file), measure))
    return plan


def _edge_a_of(run: RunFolder, side: str, localised: bool) -> Callable[[], GateReport]:
    return lambda: edge_a_of_run(run, side, localised=localised)


def _measure_a0(run: RunFolder) -> GateReport:
    from parity.a0 import measure_a0

    return measure_a0(run, settings_of(run).parity)


def edge_a_of_run(
    run: RunFolder,
    side: str,
    *,
    rows: Sequence[dict[str, Any]] | None = None,
    fixtures_to: Path | None = None,
    localised: bool = False,
) -> GateReport:
    """Measure edge A of a run's base graph against its base model, or of its tuned graph against `merged/`.

    With the tuned graph goes the prompt contract: what is exported must be asked as it was trained.

    Args:
        run: the folder.
        side: `base` or `tuned`.
        rows: what to measure on; None takes the training split.
        fixtures_to: a folder to write fixtures to.
        localised: compare the graph's inside even when nothing is missed.

    Raises:
        StageError: a part is missing or cannot be loaded.
    """
    from parity.a0 import contract_results
    from parity.edge_a import measure_edge_a

    if side == "tuned":
        run.require_trained_data()
    recipe = read_json(run.path("recipe.json"))
    report = measure_edge_a(
        run.path("onnx", "base.onnx" if side == "base" else "model.onnx"),
        read_json(run.path("onnx", "contract.json")),
        Path(recipe["model"]["path"]) if side == "base" else run.path("merged"),
        measured_rows(run) if rows is None else rows,
        load_budgets(recipe["architecture"]),
        settings_of(run),
        fixtures_to=fixtures_to,
        localised=localised,
    )
    if side == "tuned":  # the graph is worth what its prompts are
        report.results = contract_results(run) + report.results
    return report


def measured_rows(run: RunFolder) -> list[dict[str, Any]]:
    """Return the training split, or the one prompt of the prompt contract where there is no data yet."""
    train, contract = run.path("data", "train.jsonl"), run.path("prompt_contract.json")
    if train.is_file():
        return read_jsonl(train)
    if contract.is_file():
        return [{"id": "prompt-contract", "ids": read_json(contract)["ids"]}]
    raise StageError(f"{train}: no such file", hint="run `mlx-sentis prepare` first")


def _attempt(name: str, measure: Callable[[], GateReport], say: Callable[[str], None]) -> GateReport:
    """Measure one gate; that it could not be measured is a failed result."""
    say(f"measuring {name}")
    try:
        return measure()
    except StageError as error:
        gate = "a0" if "A0" in name else "a"
        return GateReport(gate, [GateResult(name, False, "not run", where=name, detail=error.message)])


def worst_first(reports: Sequence[GateReport]) -> list[tuple[str, GateResult]]:
    """Return (gate, result): failures first in their own order, then what passed from the lowest dB up."""
    pairs = [(report.gate, result) for report in reports for result in report.results]
    failed = [pair for pair in pairs if not pair[1].passed]
    passed = [pair for pair in pairs if pair[1].passed]
    return failed + sorted(passed, key=lambda pair: float("inf") if pair[1].psnr_db is None else pair[1].psnr_db)
