"""`bench bridge`: what merging and writing a model takes, and that memory does not grow with the model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender
from benchmarks.contenders.bridge_model import write_made_model
from benchmarks.result import Bench, Budget, Figures, Table
from mlx_sentis.catalogue import resolve_model

SECONDS, MODEL_SIZES, GROWTH_GIB = 10.0, 2.0, 0.1
WIDTH, SHARD_BYTES = 1024, 500_000_000
CURVE = (15, 30, 60, 120)  # layers of width 1024 in bf16: 0.5, 0.95, 1.9, 3.8 GiB
COLUMNS = {
    "model": "model",
    "model_gib": "model GiB",
    "written_gib": "written GiB",
    "seconds": "merge and write s",
    "reopen_seconds": "reopen s",
    "peak_memory_gib": "peak GiB",
    "growth_gib": "above start GiB",
    "kept": "effect kept",
}


def measure(asked: Asked) -> Bench:
    """Merge an adapter into a real model, then into made sharded ones of growing size."""
    name = asked.model or REAL_MODEL
    bench = Bench("bridge", "DoRA of rank 16 on every Linear merged into fp32, each in a process of its own")
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        asked.say(f"bridge: {name}")
        real = _row(name, str(resolve_model(name, asked.say)), Path(work) / "real", reopened=True)
    bench.tables["models"] = Table(COLUMNS, [real])
    whole = round(real["seconds"] + real["reopen_seconds"], 2)
    bench.budgets.append(Budget(f"{name}: merge, write, reopen", whole, SECONDS, "s"))
    sizes = round(real["peak_memory_gib"] / real["model_gib"], 3)
    bench.budgets.append(Budget(f"{name}: peak / model size", sizes, MODEL_SIZES, "×"))
    for layers in CURVE if asked.full else CURVE[:2]:
        with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
            asked.say(f"bridge: made llama of {layers} layers")
            write_made_model(Path(work) / "model", layers, WIDTH, SHARD_BYTES)
            bench.tables["models"].rows.append(_row(f"made, {layers} layers", f"{work}/model", Path(work) / "out"))
    made = bench.tables["models"].rows[1:]
    spread = round(made[-1]["growth_gib"] - made[0]["growth_gib"], 3)
    bench.budgets.append(Budget("memory, largest over smallest made model", spread, GROWTH_GIB, "GiB"))
    if not asked.full:
        bench.notes.append("--full goes on to a made model of 3.8 GiB, whose merged directory takes 7.6 GiB of disk")
    return bench


def _row(name: str, model: str, work: Path, *, reopened: bool = False) -> Figures:
    work.mkdir()
    figures: dict[str, Any] = run_contender("bridge_model", model=model, work=str(work))
    row = {"model": name} | figures
    row["growth_gib"] = round(figures["peak_memory_gib"] - figures["before_gib"], 3)
    if reopened:
        row["reopen_seconds"] = run_contender("bridge_reopen", folder=str(work / "merged"))["seconds"]
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
