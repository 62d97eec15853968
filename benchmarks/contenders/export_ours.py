"""Our export: each distinct piece traced once, assembled, weights streamed into the file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import onnxscript
import torch
import transformers

from converters.export import export_model
from converters.families import causal_lm_torch
from converters.onnx_file import read_skeleton
from weights_bridge.settings import ExportSettings

LOADED = (onnxscript, torch, transformers, causal_lm_torch)  # before the clock starts, as for the stock exporter


def measure(model: str, graph: str, contract: str) -> dict[str, Any]:
    """Return seconds, bytes and nodes.

    Args:
        model: the model directory.
        graph: the file to write.
        contract: the `contract.json` to write.
    """
    began = time.perf_counter()
    export_model(Path(model), Path(graph), ExportSettings(), Path(contract))
    seconds = time.perf_counter() - began
    nodes = len(read_skeleton(Path(graph)).model.graph.node)
    return {"seconds": round(seconds, 2), "megabytes": round(Path(graph).stat().st_size / 1e6, 2), "nodes": nodes}
