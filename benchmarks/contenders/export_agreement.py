"""Two graphs of one model on the same tokens in ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.optimum_decoder import decoder_of
from weights_bridge.compare import psnr_db
from weights_bridge.files import read_json

TOKENS = 48


def measure(graph: str, reference: str, contract: str, form: str) -> dict[str, Any]:
    """Return the PSNR of a graph's logits against a reference graph's; None when every number is equal.

    Args:
        graph: under test.
        reference: right by definition here.
        contract: of the first.
        form: of the reference's inputs, see `decoder_of`.
    """
    known = read_json(Path(contract))
    ids = np.random.default_rng(0).integers(0, known["constants"]["vocab"], TOKENS).tolist()
    pairs = ((reference, form), (graph, "ours"))
    found = [decoder_of(file, known, of_file).forward(ids)["logits"] for file, of_file in pairs]
    level = psnr_db(found[0], found[1])
    return {"logits_db": None if math.isinf(level) and level > 0 else round(level, 1), "tokens": TOKENS}
