"""The stock dynamo exporter on the whole model, behind the same flat inputs and outputs as ours."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxscript  # noqa: F401 - before the clock starts, as for ours
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from converters.families import causal_lm
from converters.families.causal_lm_torch import PAST, QUERY, FinalNorm, Layer, Prelude
from weights_bridge.model_folder import ModelFolder, layer_kinds, open_model_folder
from weights_bridge.settings import ExportSettings

Tensors = tuple[torch.Tensor, ...]


class Decoder(nn.Module):
    """The whole decoder out of the pieces that our export traces one by one.

    Args:
        model: transformers' own.
        folder: its directory.
    """

    def __init__(self, model: Any, folder: ModelFolder) -> None:
        super().__init__()
        self.kinds, self.of_layer = causal_lm.kinds_of(folder), layer_kinds(folder.config)
        self.prelude = Prelude(model.model, self.kinds, folder.architecture.sliding)
        self.layers = nn.ModuleList(Layer(layer) for layer in model.model.layers)
        self.norm, self.head = FinalNorm(model.model), model.lm_head

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, masks: Tensors, past: Tensors) -> Tensors:
        hidden, *rotary = self.prelude(input_ids, position_ids)
        present = []
        for index, layer in enumerate(self.layers):
            kind = self.kinds.index(self.of_layer[index])
            cos, sin = rotary[2 * kind : 2 * kind + 2]
            hidden, key, value = layer(hidden, cos, sin, masks[kind], *past[2 * index : 2 * index + 2])
            present += [key, value]
        return self.head(self.norm(hidden)), *present


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
    whole: Any = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32, attn_implementation="eager")
    decoder = Decoder(whole.eval().requires_grad_(False), folder)
    inputs, outputs = causal_lm.io(folder)
    sizes = {"query": QUERY, "past": PAST, "total": PAST + QUERY}
    made = [_example(entry, sizes) for entry in inputs]
    dynamic = [_dynamic(entry) for entry in inputs]
    masks = 2 + len(decoder.kinds)

    def nested(flat: list[Any]) -> tuple[Any, ...]:
        return (*flat[:2], tuple(flat[2:masks]), tuple(flat[masks:]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            decoder,
            nested(made),
            input_names=[entry["name"] for entry in inputs],
            output_names=[entry["name"] for entry in outputs],
            dynamic_shapes=nested(dynamic),
            opset_version=ExportSettings().opset,
            dynamo=True,
            verbose=False,
        )


def _example(entry: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
    shape = [sizes[size] if isinstance(size, str) else int(size) for size in entry["shape"]]
    return torch.zeros(shape, dtype=torch.int64 if entry["dtype"] == "int64" else torch.float32)


def _dynamic(entry: dict[str, Any]) -> dict[int, Any]:
    return {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(entry["shape"]) if isinstance(size, str)}
