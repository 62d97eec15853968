"""`bench train`: one update of our step, of our code as a plain step, of mlx-lm's own loop, and of a torch loop."""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender, run_rival
from benchmarks.result import Bench, Budget, Figures, Table, ratio
from weights_bridge.errors import StageError

RUNS, ROWS = 2, 8
LOSS_APART = 1e-3  # nats; the same rows, labels and weights give the same first loss in every contender
COLUMNS = {
    "contender": "contender",
    "device": "device",
    "seconds_per_step": "s per step",
    "over_ours": "× ours",
    "computed_tokens_per_second": "computed tok/s",
    "trained_tokens_per_second": "supervised tok/s",
    "peak_memory_gib": "peak GiB",
    "first_loss": "first loss",
    "not_measured": "",
}


def measure(asked: Asked) -> Bench:
    """Measure a step of every contender on the same prepared rows, each in its own process.

    Raises:
        StageError: more rows asked than there are, or our own step cannot run.
    """
    model, runs, batch_rows = asked.model or REAL_MODEL, asked.runs or RUNS, asked.rows or ROWS
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as prepared:
        asked.say(f"train: preparing {model}")
        there = run_contender("prepare", model=model, out=prepared)["rows"]
        if batch_rows > there:
            raise StageError(f"--rows {batch_rows}: there are {there} training rows", hint="ask for fewer")
        common = {"prepared": prepared, "rows": batch_rows, "runs": runs}
        asked.say("train: ours")
        ours = {"contender": "ours"} | run_contender("train_ours", **common, plain=False)
        rows = [
            ours,
            _measured(asked, "our code as a plain step", "train_ours", common | {"plain": True}),
            _measured(asked, "mlx-lm, its own loop", "train_mlx_lm", common),
            _measured(asked, "torch loop", "train_torch", common),
        ]
    return report(model, batch_rows, runs, rows)


def _measured(asked: Asked, label: str, module: str, arguments: dict[str, Any]) -> Figures:
    asked.say(f"train: {label}")
    return {"contender": label} | run_rival(module, **arguments)


def report(model: str, batch_rows: int, runs: int, rows: list[Figures]) -> Bench:
    """Return the benchmark of contenders' figures; the first row is ours.

    Args:
        model: its name.
        batch_rows: rows in a step.
        runs: counted steps.
        rows: what `benchmarks.contenders.training.figures` returned, each with `contender`, or `not_measured`.
    """
    for row in rows:
        if "seconds" in row:
            median = statistics.median(row["seconds"])
            row["seconds_per_step"] = round(median, 4)
            row["computed_tokens_per_second"] = round(row["computed_tokens"] / median, 1)
            row["trained_tokens_per_second"] = round(row["trained_tokens"] / median, 1)
        row["over_ours"] = ratio(row.get("seconds_per_step"), rows[0]["seconds_per_step"])
    title = f"one LoRA update of {model}, {batch_rows} rows, fp32, median of {runs} after one warm-up"
    bench = Bench("train", title, {"contenders": Table(COLUMNS, rows)})
    ours = rows[0]
    bench.facts = {name: ours[name] for name in ("parameters", "trained_tokens", "prefix_tokens") if name in ours}
    bench.budgets = [
        Budget(f"first loss of {row['contender']}, from ours", _apart(row, ours), LOSS_APART, "nats")
        for row in rows[1:]
        if "first_loss" in row
    ]
    if unequal := [row["contender"] for row in rows if row.get("parameters", ours["parameters"]) != ours["parameters"]]:
        raise RuntimeError(f"these contenders train another number of parameters: {unequal}")
    bench.notes.append("ours: prompt prefix once, head at labels; the others: every row whole, logits at every token")
    if not any(row.get("device") == "mps" for row in rows):
        bench.notes.append("torch on MPS: not measured here, this machine has none; the torch loop ran on the CPU")
    if ours["device"] == "cpu":
        bench.notes.append("no contender's step is compiled: MLX's CPU backend would call a C++ compiler per kernel")
    return bench


def _apart(row: Figures, ours: Figures) -> float:
    return round(abs(row["first_loss"] - ours["first_loss"]), 6)
