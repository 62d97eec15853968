"""What a run must have before a kit is made of it: all files, and a passed edge A for this very model."""

from __future__ import annotations

from pathlib import Path

from weights_bridge.errors import BudgetMissedError, StageError, all_at_once
from weights_bridge.files import bring_back, read_json
from weights_bridge.run_folder import RunFolder

GATE_STAGE = "edge-a-tuned"
MADE_BY = {
    "prompt_contract.json": "prepare",
    "onnx/contract.json": "export",
    "onnx/model.onnx": "swap",
    "onnx/fixtures/index.json": "edge-a-tuned",
    "merged/tokenizer.json": "bridge",
}
GATE_HINT = "run `mlx-sentis parity RUN --edge a`, or take --ungated to write the kit all the same"


def require_finished(run: RunFolder, *, ungated: bool) -> list[Path]:
    """Return the files of a run that a kit is made of.

    Args:
        run: the run.
        ungated: do without a passed edge A.

    Raises:
        BudgetMissedError: edge A was not measured on this model, or missed.
        StageError: files are missing, with the stage that makes each.
    """
    bring_back(run.path("onnx", "fixtures"))
    missing = [f"{name}: stage {stage}" for name, stage in MADE_BY.items() if not run.path(name).is_file()]
    if missing:
        hint = "finish it with `mlx-sentis run`; --base takes the base weights, --prompt-only prompt and tests alone"
        raise all_at_once(f"{run.root}: the run is not finished, there is no:", missing, hint=hint)
    verdict = run.path("parity", "a.json")
    if not ungated and (why := gate_fault(run, verdict)):
        raise BudgetMissedError(f"edge A has not passed for this model: {why}", hint=GATE_HINT)
    archives = sorted(run.path("onnx", "fixtures").glob("*.npz"))
    gate = run.path("eval", "gate.json")
    optional = [verdict] if verdict.is_file() else []
    optional += [gate] if gate.is_file() or run.is_recorded(gate) else []
    return [*(run.path(name) for name in MADE_BY), *archives, *optional]


def gate_fault(run: RunFolder, verdict: Path, stage: str = GATE_STAGE, graph: str = "onnx/model.onnx") -> str:
    """Return why edge A has not passed for a graph of a run; empty where it has."""
    if not verdict.is_file():
        return f"{verdict} is not there"
    try:
        report = read_json(verdict)
    except StageError as error:
        return error.message
    if not isinstance(report, dict) or report.get("passed") is not True:
        return f"{verdict} says it failed"
    measured = run.manifest()["stages"].get(stage, {"inputs": {}})["inputs"].get(graph)
    if measured is None or measured != run.recorded_hashes().get(graph):
        return f"{verdict} was measured on another {graph}"
    return ""
