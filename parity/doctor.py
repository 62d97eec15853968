"""`doctor`: what this machine offers, measured and not guessed."""

from __future__ import annotations

import importlib.util
import shutil
import time
from typing import Any

from weights_bridge.console import Output, command
from weights_bridge.run_folder import user_cache, versions


def blas_gflops(size: int = 1024, runs: int = 5) -> tuple[float, float | None]:
    """Return GFLOP/s of an fp32 product of two size³ matrices, median: MLX on its CPU backend, torch or None.

    Both in this process, one after the other, after a warm-up.
    """
    from mlx_sentis.blas import activate

    activate()  # before MLX is imported
    import mlx.core as mx

    def median_rate(product: Any) -> float:
        product()
        seconds = []
        for _ in range(runs):
            began = time.perf_counter()
            product()
            seconds.append(time.perf_counter() - began)
        return 2 * size**3 / sorted(seconds)[len(seconds) // 2] / 1e9

    with mx.stream(mx.cpu):
        a, b = mx.random.normal((size, size)), mx.random.normal((size, size))
        mx.eval(a, b)
        ours = median_rate(lambda: mx.eval(mx.matmul(a, b, stream=mx.cpu)))
    if importlib.util.find_spec("torch") is None:
        return ours, None
    import torch

    x, y = torch.randn(size, size), torch.randn(size, size)
    return ours, median_rate(lambda: torch.matmul(x, y))


def facts() -> dict[str, Any]:
    """Return everything `doctor` says."""
    from mlx_sentis.blas import activate

    blas = activate()  # before MLX is imported
    import mlx.core as mx

    mlx, torch = blas_gflops()
    found: dict[str, Any] = {
        "versions": versions(),
        "blas": {"name": blas.name, "library": blas.library, "fast": blas.is_fast},
        "gflops_1024": {"mlx": round(mlx, 1), "torch": None if torch is None else round(torch, 1)},
        "device": str(mx.default_device()),
        "metal": mx.metal.is_available(),
        "cache": str(user_cache()),
        "free_disk_gb": round(shutil.disk_usage(_existing(user_cache())).free / 1e9, 1),
    }
    if found["metal"]:
        found["metal_device"] = {key: str(value) for key, value in mx.device_info().items()}
    return found


def _existing(path: Any) -> Any:
    while not path.exists():
        path = path.parent
    return path


def advice(found: dict[str, Any]) -> list[str]:
    """Return what to do about what was found, one line each."""
    lines = []
    if not found["blas"]["fast"]:
        lines.append("MLX uses the reference BLAS, about 20 times slower: install torch or libopenblas0 (Linux)")
    if found["free_disk_gb"] < 5:
        lines.append(f"{found['free_disk_gb']} GB free: the demo needs 5 GB")
    return lines


@command("doctor", examples=("doctor", "doctor --json"))
def doctor(output: Output) -> None:
    """Say what this machine offers: BLAS, devices, versions."""
    found = facts()
    blas, rates = found["blas"], found["gflops_1024"]
    torch = "torch is not installed" if rates["torch"] is None else f"torch {rates['torch']:.0f} GFLOP/s"
    lines = [
        f"BLAS under MLX   {blas['name']}{' (' + blas['library'] + ')' if blas['library'] else ''}",
        f"1024³ fp32       MLX {rates['mlx']:.0f} GFLOP/s, {torch}, same process",
        f"device           {found['device']}, Metal {'available' if found['metal'] else 'not available'}",
        f"model cache      {found['cache']}, {found['free_disk_gb']} GB free",
        "versions         " + ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
    ]
    todo = advice(found)
    lines += [f"to do            {line}" for line in todo] or ["nothing to mend"]
    output.answer("doctor", found | {"advice": todo}, "\n".join(lines))
