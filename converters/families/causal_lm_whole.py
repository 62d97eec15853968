"""A whole decoder as one torch module with the flat inputs and outputs of the contract. Imports torch at the top.

It is put together from the pieces that the export traces one by one, with transformers' own weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from converters.families import causal_lm
from converters.families.causal_lm_torch import PAST, QUERY, FinalNorm, Layer, Prelude, plain_config
from converters.families.grouped_attention import NAME as GROUPED
from weights_bridge.model_folder import ModelFolder, layer_kinds

Tensors = tuple[torch.Tensor, ...]


class Decoder(nn.Module):
    """The whole decoder out of its pieces.

    Args:
        model: transformers' own.
        folder: its directory.
        argmax: whether the last row's likeliest id [B, 1] comes last.
    """

    def __init__(self, model: Any, folder: ModelFolder, *, argmax: bool = False) -> None:
        super().__init__()
        self.argmax = argmax
        self.kinds, self.of_layer = causal_lm.kinds_of(folder), layer_kinds(folder.config)
        self.prelude = Prelude(model.model, self.kinds, folder.architecture.rotary_by_kind)
        self.layers = nn.ModuleList(Layer(layer) for layer in model.model.layers)
        self.norm, self.head = FinalNorm(model.model), model.lm_head
        self.cap = folder.config.get("final_logit_softcapping")

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, masks: Tensors, past: Tensors) -> Tensors:
        hidden, *rotary = self.prelude(input_ids, position_ids)
        present = []
        for index, layer in enumerate(self.layers):
            kind = self.kinds.index(self.of_layer[index])
            cos, sin = rotary[2 * kind : 2 * kind + 2]
            hidden, key, value = layer(hidden, cos, sin, masks[kind], *past[2 * index : 2 * index + 2])
            present += [key, value]
        logits = self.head(self.norm(hidden))
        if self.cap:
            logits = torch.tanh(logits / self.cap) * self.cap
        return logits, *present, *([logits[:, -1:].argmax(2)] if self.argmax else [])


def decoder(folder: ModelFolder, attention: str = GROUPED, *, argmax: bool = False) -> Decoder:
    """Return a directory's decoder in fp32, ready to be traced; what MLX packed is dequantised."""
    known: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": attention}
    if folder.origin == "torch":
        whole: Any = AutoModelForCausalLM.from_pretrained(folder.path, local_files_only=True, **known)
    else:
        whole = AutoModelForCausalLM.from_config(plain_config(folder), **known)
        weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in folder.tensors()}
        whole.load_state_dict(weights, strict=False)  # a tied head is no tensor; `check_tensors` knew every other
        whole.tie_weights()
    return Decoder(whole.eval().requires_grad_(False), folder, argmax=argmax)


def nested(folder: ModelFolder, flat: list[Any]) -> tuple[Any, ...]:
    """Return a flat list in the contract's order as the module takes it: ids, positions, masks, caches."""
    masks = 2 + len(causal_lm.kinds_of(folder))
    return (*flat[:2], tuple(flat[2:masks]), tuple(flat[masks:]))


def examples(folder: ModelFolder, batch: str = "1") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return example inputs and their dynamic sizes, both nested."""
    sizes = {"batch": 2, "query": QUERY, "past": PAST, "total": PAST + QUERY}
    inputs, _ = causal_lm.io(folder, batch)
    made = [_example(entry, sizes) for entry in inputs]
    return nested(folder, made), nested(folder, [_dynamic(entry) for entry in inputs])


def _example(entry: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
    shape = [sizes[size] if isinstance(size, str) else int(size) for size in entry["shape"]]
    return torch.zeros(shape, dtype=torch.int64 if entry["dtype"] == "int64" else torch.float32)


def _dynamic(entry: dict[str, Any]) -> dict[int, Any]:
    return {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(entry["shape"]) if isinstance(size, str)}
