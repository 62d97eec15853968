"""The 1024³ fp32 product in MLX and in torch, in one process, with or without the fast BLAS under MLX."""

from __future__ import annotations

from typing import Any


def measure(fast: bool, size: int, runs: int) -> dict[str, Any]:
    """Return GFLOP/s of both.

    Args:
        fast: put the fast BLAS under MLX first, as every stage does; otherwise MLX binds what its wheel links.
        size: of the square matrices.
        runs: counted products.
    """
    if not fast:
        import mlx.core as mx  # first: its symbols are bound now, nothing interposes them any more

        del mx
    from mlx_sentis.training import BLAS
    from parity.doctor import blas_gflops

    ours, torch = blas_gflops(size, runs)
    return {"blas": BLAS.name, "mlx_gflops": round(ours, 2), "torch_gflops": torch and round(torch, 2)}
