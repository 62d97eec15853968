"""Which model answers: the base or the tuned one, through MLX or through the exported graph.

One process uses one runner: MLX and ONNX Runtime (or torch) never meet in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from mlx_sentis.evaluation.generator import Generator
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder

Runner = Literal["onnx", "mlx"]
Side = Literal["base", "tuned"]
RUNNERS: tuple[Runner, ...] = ("onnx", "mlx")
GRAPHS: dict[Side, str] = {"base": "base.onnx", "tuned": "model.onnx"}


def files_of(run: RunFolder, runner: Runner, side: Side) -> list[Path]:
    """Return what a runner reads of a run."""
    if runner == "onnx":
        return [run.path("onnx", "contract.json"), run.path("onnx", GRAPHS[side])]
    return [run.path("merged")] if side == "tuned" else _weight_files(run)


def _weight_files(run: RunFolder) -> list[Path]:
    from weights_bridge.model_folder import open_model_folder

    return open_model_folder(_base(run)).weight_files()


def _base(run: RunFolder) -> Path:
    return Path(read_json(run.path("recipe.json"))["model"]["path"])


def open_generator(run: RunFolder, runner: Runner, side: Side) -> Generator:
    """Load a run's base or tuned model.

    Raises:
        StageError: the graph or the directory cannot be loaded.
    """
    if runner == "onnx":
        from parity.runners.onnx_decoder import OnnxDecoder

        return OnnxDecoder(run.path("onnx", GRAPHS[side]), read_json(run.path("onnx", "contract.json")))
    from parity.runners.mlx_decoder import MlxDecoder

    return MlxDecoder(run.path("merged") if side == "tuned" else _base(run))
