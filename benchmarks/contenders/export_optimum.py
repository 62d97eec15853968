"""optimum-onnx's own export of a decoder with caches, by another interpreter that has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from converters.onnx_file import read_skeleton
from converters.optimum_path import run_optimum
from weights_bridge.settings import ExportSettings


def measure(model: str, folder: str, python: str) -> dict[str, Any]:
    """Return the file, seconds, bytes and nodes; the largest child's memory counts as this process's.

    Args:
        model: the model directory.
        folder: where it writes; made here.
        python: the interpreter.
    """
    Path(folder).mkdir()
    made = run_optimum(Path(model), Path(folder), ExportSettings().opset, python)
    files = [path.stat().st_size for path in Path(folder).iterdir() if path.suffix in (".onnx", ".onnx_data")]
    nodes = len(read_skeleton(made["file"]).model.graph.node)
    figures = {"seconds": made["seconds"], "megabytes": round(sum(files) / 1e6, 2), "nodes": nodes}
    return figures | {"graph": str(made["file"]), "versions": made["versions"]}
