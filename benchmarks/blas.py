"""`bench blas`: how near MLX's fp32 product on the CPU comes to torch's, and what the BLAS under it brings."""

from __future__ import annotations

import sys

from benchmarks.asked import Asked
from benchmarks.contender import run_contender
from benchmarks.result import Bench, Budget, Figures, Table, ratio

SIZE, RUNS = 1024, 7
TORCH_OVER_MLX = 2.0  # times; measured 1.0–1.6 on two Linux cores
COLUMNS = {"contender": "BLAS under MLX", "mlx_gflops": "MLX GFLOP/s", "torch_gflops": "torch GFLOP/s"}
COLUMNS |= {"torch_over_mlx": "torch / MLX", "peak_memory_gib": "peak GiB"}


def measure(asked: Asked) -> Bench:
    """Measure the product as the stages compute it, and where it differs also as MLX's wheel comes."""
    runs = asked.runs or RUNS
    asked.say(f"blas: {SIZE}³ fp32, median of {runs}")
    ours = _row(run_contender("blas_product", fast=True, size=SIZE, runs=runs))
    bench = Bench("blas", f"fp32 {SIZE}³ product on the CPU, MLX and torch in one process, median of {runs}")
    bench.tables["products"] = Table(COLUMNS, [ours])
    bench.budgets.append(Budget("torch / MLX", ours["torch_over_mlx"], TORCH_OVER_MLX, "×"))
    if sys.platform == "darwin":
        bench.notes.append("reference BLAS: not measured here, MLX's macOS wheel links Accelerate")
        return bench
    plain = _row(run_contender("blas_product", fast=False, size=SIZE, runs=runs))
    bench.tables["products"].rows.append(plain)
    gain = ratio(ours["mlx_gflops"], plain["mlx_gflops"])
    bench.facts["gain"] = gain
    bench.notes.append(f"the BLAS put under MLX makes it {gain:.1f} times as fast as its wheel")
    return bench


def _row(figures: Figures) -> Figures:
    named = "reference (as the wheel comes)" if figures["blas"] == "reference" else figures["blas"]
    over = ratio(figures["torch_gflops"], figures["mlx_gflops"])
    return {"contender": named} | figures | {"torch_over_mlx": over}
