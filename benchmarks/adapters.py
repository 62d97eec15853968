"""`bench adapters`: what adapted layers cost, forward and backward, beside frozen layers and mlx-lm's own."""

from __future__ import annotations

from benchmarks.asked import Asked
from benchmarks.contender import run_contender
from benchmarks.result import Bench, Budget, Figures, Table, ratio

RUNS = 7
WIDE_TWICE = 1.6  # times; quantised weights are made wide for each pass on the CPU, mlx-lm keeps them wide between
CASES = {  # name: out, in, positions, bits
    "576 ↔ 1536 (SmolLM2), 600 positions": (1536, 576, 600, 0),
    "576 ↔ 1536 (SmolLM2), 60 positions": (1536, 576, 60, 0),
    "2048 × 2048, 60 positions": (2048, 2048, 60, 0),
    "2048 × 2048 at 4 bits, 60 positions": (2048, 2048, 60, 4),
}
FROZEN, RIVAL, OURS = "frozen layers alone", "mlx-lm, DoRALinear", "ours, dora"
COLUMNS = {"contender": "contender", "milliseconds": "ms", "over_frozen": "× frozen", "peak_mib": "peak MiB"}


def measure(asked: Asked) -> Bench:
    """Measure every kind on a few layers; contenders take turns in one process, equality of DoRA is required first."""
    runs = asked.runs or RUNS
    bench = Bench("adapters", f"four adapted layers, rank 16, forward and backward, the quickest of {runs} rounds")
    for name, (out, width, tokens, bits) in CASES.items():
        asked.say(f"adapters: {name}")
        found = run_contender("adapter_layers", out=out, width=width, tokens=tokens, bits=bits, runs=runs)
        layers = {contender: one for contender, one in found.items() if contender != "peak_memory_gib"}
        add_case(bench, name, layers, slower_at_most=WIDE_TWICE if bits else 1.0)
    bench.notes.append("quantised: on the CPU ours makes W wide in each pass and keeps none of it in between")
    bench.notes.append("frozen layers alone: the gradient at its input only; peak: MLX's allocations of one call")
    return bench


def add_case(bench: Bench, name: str, found: Figures, slower_at_most: float = 1.0) -> None:
    """Add one shape's table, and the budgets of our DoRA against mlx-lm's.

    Args:
        bench: gets the table and the budgets.
        name: of the shape.
        found: contender to `seconds` and `peak_mib`.
        slower_at_most: our time over mlx-lm's that still passes; memory must be no larger.
    """
    frozen = found[FROZEN]["seconds"]
    rows = [
        {
            "contender": contender,
            "milliseconds": round(1000 * one["seconds"], 3),
            "over_frozen": ratio(one["seconds"], frozen),
            "peak_mib": one["peak_mib"],
        }
        for contender, one in found.items()
    ]
    bench.tables[name] = Table({**COLUMNS, "contender": name}, rows)
    for measured, word, limit in (("seconds", "time", slower_at_most), ("peak_mib", "memory", 1.0)):
        share = ratio(found[OURS][measured], found[RIVAL][measured])
        bench.budgets.append(Budget(f"our DoRA's {word} / mlx-lm's, {name}", share, limit, "×"))
