"""Two graphs of one model on the same tokens in ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.compare import psnr_db
from weights_bridge.files import read_json

TOKENS = 48


def measure(graph: str, reference: str, contract: str) -> dict[str, Any]:
    """Return the PSNR of a graph's logits against a reference graph's; None when every number is equal.

    Args:
        graph: under test.
        reference: right by definition here.
        contract: of both.
    """
    known = read_json(Path(contract))
    ids = np.random.default_rng(0).integers(0, known["constants"]["vocab"], TOKENS).tolist()
    found = [OnnxDecoder(Path(file), known).forward(ids)["logits"] for file in (reference, graph)]
    level = psnr_db(found[0], found[1])
    return {"logits_db": None if math.isinf(level) and level > 0 else round(level, 1), "tokens": TOKENS}
