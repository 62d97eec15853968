"""The bars of `bench train`: rows per second of each contender, case by case."""

from __future__ import annotations

from pathlib import Path

from benchmarks.result import Bench
from mlx_sentis.canvas import COLOURS, INK, canvas, finish


def draw(bench: Bench, path: Path) -> None:
    """Draw rows per second, each bar with its figure; a contender that was not measured has no bar.

    Args:
        bench: with the table `contenders`.
        path: the PNG.
    """
    rows = bench.tables["contenders"].rows
    cases = list(dict.fromkeys(row["case"] for row in rows))
    labels = list(dict.fromkeys(row["contender"] for row in rows))
    figure, axes = canvas(
        "Training step: " + bench.title.split(",")[0].removeprefix("one LoRA update of "), "", "rows/s"
    )
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        of_label = {row["case"]: row for row in rows if row["contender"] == label and "rows_per_second" in row}
        at = [cases.index(case) + (number - (len(labels) - 1) / 2) * width for case in of_label]
        heights = [row["rows_per_second"] for row in of_label.values()]
        bars = axes.bar(at, heights, width * 0.92, label=label, color=COLOURS[number])
        texts = [f"{row['rows_per_second']:.2g}\n{row['peak_memory_gib']:.1f} GiB" for row in of_label.values()]
        axes.bar_label(bars, texts, padding=2, fontsize=8.5, color=INK)
    axes.set_xticks(range(len(cases)), cases)
    axes.margins(y=0.18)
    finish(figure, axes, path)
