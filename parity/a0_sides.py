"""Gate A0's two sides, each run in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from parity.a0_compare import Sides
from parity.children import run_child
from parity.gate_request import GateRequest
from weights_bridge.compare import Array

MLX, TORCH, MLX_LAYERS = (f"parity.runners.{name}" for name in ("mlx_gate", "torch_gate", "mlx_layers"))


def both_sides(asked: GateRequest) -> Sides:
    """Run MLX and torch and return what they wrote."""
    return Sides.of(answer_of(MLX, asked), answer_of(TORCH, asked))


def answer_of(module: str, asked: GateRequest, given: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Run one side in a process of its own and return the arrays it wrote.

    Args:
        module: with `answer(request)`.
        asked: the question; `out` and `given` are filled in here.
        given: arrays to hand over, under their names.
    """
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-a0-") as work:
        out, file = Path(work) / "answer.npz", Path(work) / "given.npz"
        if given is not None:
            np.savez(file, **given)  # pyright: ignore[reportArgumentType]
        asked = asked.with_(out=str(out), given="" if given is None else str(file))
        run_child(module, asked.as_json(), Path(work) / "request.json")
        with np.load(out) as npz:
            return {name: npz[name] for name in npz.files}
