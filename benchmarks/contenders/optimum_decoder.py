"""optimum-onnx's decoder graph in the same loop as ours: its caches bear the same names, its mask is another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.compare import Array

MASK = "attention_mask"


class OptimumDecoder(OnnxDecoder):
    """A graph of `text-generation-with-past`.

    Args:
        onnx: the file.
        contract: of our graph of the same model; what a caller needs to know of the architecture stands there.

    Raises:
        StageError: the file cannot be loaded, or it has other inputs and outputs.
    """

    def __init__(self, onnx: Path, contract: Mapping[str, Any]) -> None:
        super().__init__(onnx, {**contract, "masks": {MASK: "full_attention"}})

    def fed(self, ids: Sequence[int], past: int) -> dict[str, Array]:
        """Return ids, positions and its mask [1, past + q] int64: 1 for every token, who sees whom is in the graph."""
        positions = np.arange(past, past + len(ids), dtype=np.int64)[None]
        mask = np.ones((1, past + len(ids)), np.int64)
        return {"input_ids": np.asarray([ids], np.int64), "position_ids": positions, MASK: mask}


def decoder_of(graph: str, contract: Mapping[str, Any], form: str) -> OnnxDecoder:
    """Return the decoder of a graph; its form is `optimum`, or any other word for our own inputs and outputs."""
    return OptimumDecoder(Path(graph), contract) if form == "optimum" else OnnxDecoder(Path(graph), contract)
