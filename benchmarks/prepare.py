"""`bench prepare`: how many rows a second are read, split, rendered, masked and written, and in how much memory."""

from __future__ import annotations

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender
from benchmarks.result import Bench, Budget, Figures, Table

ROWS = 100_000
SECONDS, MEMORY_GIB, INDEX_BYTES = 240.0, 2.0, 1024.0  # the budget of time is that of ROWS rows of about 300 tokens
COLUMNS = {
    "rows": "rows",
    "tokens_per_row": "tokens per row",
    "workers": "workers",
    "seconds_reading": "s reading",
    "seconds": "s in all",
    "cpu_seconds": "CPU s",
    "rows_per_second": "rows/s",
    "all_gib": "GiB in all",
    "index_bytes_per_row": "index bytes per row",
}


def measure(asked: Asked) -> Bench:
    """Prepare made-up rows with a real tokenizer, in a process of its own with its workers."""
    model, rows = asked.model or REAL_MODEL, asked.rows or ROWS
    asked.say(f"prepare: {rows} rows for {model}")
    return report(model, run_contender("prepare_rows", model=model, rows=rows))


def report(model: str, figures: Figures) -> Bench:
    """Return the benchmark of one run's figures.

    Args:
        model: its name.
        figures: what `benchmarks.contenders.prepare_rows` measured.
    """
    rows = figures["rows"]
    row = figures | {
        "tokens_per_row": round(figures["tokens"] / rows, 1),
        "rows_per_second": round(rows / figures["seconds"], 1),
    }
    title = f"{rows} made-up rows for {model}: read, clustered, split, rendered, masked and written, one run"
    bench = Bench("prepare", title, {"runs": Table(COLUMNS, [row])})
    bench.facts = {name: figures[name] for name in ("tokens", "megabytes", "near_duplicate_rows")}
    bench.budgets = [
        Budget("all processes", figures["all_gib"], MEMORY_GIB, "GiB", detail="resident sizes together, sampled"),
        Budget("index per row", figures["index_bytes_per_row"], INDEX_BYTES, "bytes"),
    ]
    if rows >= ROWS:
        bench.budgets.insert(0, Budget("whole stage", figures["seconds"], SECONDS, "s"))
    else:
        bench.notes.append(f"no budget of time: it is for {ROWS} rows, and few rows pay for the start of workers")
    bench.notes.append("s reading: the first reading alone, with index, clusters and split")
    return bench
