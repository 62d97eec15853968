"""The stock dynamo exporter on the whole model, behind the same flat inputs and outputs as ours."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxscript  # noqa: F401 - before the clock starts, as for ours
import torch

from converters.families import causal_lm, causal_lm_whole
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.settings import ExportSettings


def measure(model: str, graph: str) -> dict[str, Any]:
    """Return seconds, bytes and nodes.

    Args:
        model: the model directory.
        graph: the file to write.
    """
    began = time.perf_counter()
    folder = open_model_folder(Path(model))
    program = exported(folder)
    program.save(graph, external_data=False)
    seconds = time.perf_counter() - began
    nodes = len(onnx.load(graph).graph.node)
    return {"seconds": round(seconds, 2), "megabytes": round(Path(graph).stat().st_size / 1e6, 2), "nodes": nodes}


def exported(folder: ModelFolder) -> Any:
    """Return the stock exporter's program, optimised as it does by default."""
    inputs, outputs = causal_lm.io(folder)
    made, dynamic = causal_lm_whole.examples(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            causal_lm_whole.decoder(folder, "eager"),
            made,
            input_names=[entry["name"] for entry in inputs],
            output_names=[entry["name"] for entry in outputs],
            dynamic_shapes=dynamic,
            opset_version=ExportSettings().opset,
            dynamo=True,
            verbose=False,
        )
