"""`bench demo RUN`: what a finished run cost and reached, read from its own files, against the project's budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from benchmarks.asked import Asked
from benchmarks.result import Bench, Budget, Figures, Table
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder

# the manifest's stages of one `mlx-sentis run`, in order; later measurements (`parity`) are not part of it
STAGES = ("recipe", "scan", "export", "edge-a-base", "prepare", "train", "bridge", "a0", "swap", "fix", "edge-a-tuned")
STAGES += ("edge-b", "eval", "report")
MINUTES, MEMORY_GIB = 20.0, 6.0
SELECTION_PERCENT = 85.0
FORWARD_DB, BACKWARD_DB = 110.0, 90.0
GATES = {"gate A0": "a0.json", "edge A, base": "a-base.json", "edge A, tuned": "a.json"}
STAGE_COLUMNS = {"stage": "stage", "seconds": "seconds", "peak_memory_gib": "peak GiB"}
AXIS_COLUMNS = {"axis": "held out", "before": "before", "after": "after", "verdict": "verdict"}


def measure(asked: Asked) -> Bench:
    """Read a run.

    Raises:
        StageError: no run folder given, or it is none.
    """
    if asked.run is None:
        raise StageError("bench demo: no run folder given", hint="mlx-sentis bench demo runs/NAME")
    run = RunFolder.existing(asked.run)
    stages = {name: entry for name, entry in run.manifest()["stages"].items() if name in STAGES}
    rows = [{"stage": name} | {key: stages[name][key] for key in STAGE_COLUMNS if key != "stage"} for name in stages]
    model = read_json(run.path("recipe.json"))["model"]["name"] if run.path("recipe.json").is_file() else "no recipe"
    bench = Bench("demo", f"{asked.run.name}: {model}", {"stages": Table(STAGE_COLUMNS, rows)})
    bench.facts["seconds_in_stages"] = round(sum(row["seconds"] for row in rows), 1)
    bench.budgets += cost_budgets(stages)
    for gate, file in GATES.items():
        bench.budgets += gate_budgets(gate, _read(run, "parity", file))
    bench.budgets.append(_add_axes(bench, _read(run, "eval", "axes.json")))
    for name, entry in stages.items():
        bench.facts.setdefault("versions", entry["versions"])
        if entry["facts"].get("ungated"):
            bench.notes.append(f"stage {name} went on without a passed gate A0")
    return bench


def _read(run: RunFolder, *parts: str) -> dict[str, Any] | None:
    path = run.path(*parts)
    return read_json(path) if path.is_file() else None


def cost_budgets(stages: dict[str, Any]) -> list[Budget]:
    """Return the budgets of time and memory.

    Time is the clock from the start of the first stage to the end of the last, so that starting processes counts.

    Args:
        stages: the manifest's entries of the pipeline's stages.
    """
    missing = [name for name in STAGES if name not in stages]
    detail = f"not run: {', '.join(missing)}" if missing else "from the first stage's start to the last one's end"
    minutes = None if missing else round(wall_seconds(stages) / 60, 2)
    peaks = {name: entry["peak_memory_gib"] for name, entry in stages.items()}
    largest = max(peaks, key=peaks.__getitem__, default="")
    return [
        Budget("all stages", minutes, MINUTES, "min", detail=detail),
        Budget("largest process", peaks.get(largest), MEMORY_GIB, "GiB", detail=f"stage {largest}"),
    ]


def wall_seconds(stages: dict[str, Any]) -> float:
    """Return the seconds from the first stage's start to the last one's end; a pause before `--from` counts."""
    ends = {name: datetime.fromisoformat(entry["finished"]).timestamp() for name, entry in stages.items()}
    return max(ends.values()) - min(ends[name] - entry["seconds"] for name, entry in stages.items())


def gate_budgets(gate: str, report: dict[str, Any] | None) -> list[Budget]:
    """Return the budgets of one gate: all its checks, forward, backward and greedy tokens where it has them.

    Args:
        gate: its label.
        report: its JSON; None when it was not run.
    """
    if report is None or not report["results"]:
        return [Budget(f"{gate}: checks passed", None, 1, "", at_most=False, detail="not run")]
    results = report["results"]
    passed = sum(result["passed"] for result in results)
    found = [Budget(f"{gate}: checks passed", passed, len(results), "", at_most=False)]
    greedy = [result for result in results if result["tensor"].startswith("greedy")]
    backward = [result for result in results if result["tensor"].startswith("backward")]
    forward = [result for result in results if result not in greedy and result not in backward]
    found.append(_level(f"{gate}: forward", forward, FORWARD_DB))
    if gate == "gate A0":
        found.append(_level(f"{gate}: backward", backward, BACKWARD_DB))
        return found
    equal = sum(result["passed"] for result in greedy)
    tokens = report["facts"].get("greedy", {}).get("tokens", 0)
    wanted = max(1, len(greedy))  # an edge without any greedy answer has not shown that they are equal
    label, detail = f"{gate}: greedy answers equal", f"{tokens} tokens each"
    return [*found, Budget(label, equal, wanted, "", at_most=False, detail=detail)]


def _level(measure: str, results: list[Figures], limit: float) -> Budget:
    """Return the budget of the worst dB of some results; exact when all of them are."""
    levels = [(result["psnr_db"], result["tensor"]) for result in results if result["psnr_db"] is not None]
    if not levels:
        exact = any(result["reason"] == "exact" for result in results)
        return Budget(measure, None, limit, "dB", at_most=False, exact=exact)
    worst, where = min(levels)
    return Budget(measure, round(worst, 1), limit, "dB", at_most=False, detail=where)


def _add_axes(bench: Bench, axes: dict[str, Any] | None) -> Budget:
    """Add the held-out axes to the benchmark and return the budget of function selection."""
    label = "held out: function selection"
    if axes is None or "after" not in axes:
        return Budget(label, None, SELECTION_PERCENT, "%", at_most=False, detail="not run")
    rows = []
    for axis, after in axes["after"].items():
        verdict = axes["verdicts"].get(axis, {}).get("word")
        rows.append({"axis": axis.replace("_", " "), "before": _share(axes["before"][axis]), "after": _share(after)})
        rows[-1]["verdict"] = verdict
    bench.tables["axes"] = Table(AXIS_COLUMNS, rows)
    share = axes["after"]["function_selection"]["share"]
    rejection = _share(axes["after"]["out_of_scope_rejection"])
    percent = None if share is None else round(100 * share, 1)
    detail = f"out-of-scope rejection beside it: {rejection}"
    return Budget(label, percent, SELECTION_PERCENT, "%", at_most=False, detail=detail)


def _share(axis: dict[str, Any]) -> str:
    if axis["share"] is None:
        return f"{axis['right']} of {axis['of']}"
    return f"{axis['right']} of {axis['of']} ({100 * axis['share']:.0f} %)"
