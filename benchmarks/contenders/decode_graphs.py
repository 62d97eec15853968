"""Several graphs of one model that decode in turn in ONNX Runtime, and how many layers Sentis makes of each."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.optimum_decoder import decoder_of
from converters.explain import explain
from converters.scan import scan
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.files import read_json

PROMPT, TOKENS = 256, 16  # a prompt as long as an application's, so that the cache weighs what it weighs there


def measure(graphs: dict[str, str], contract: str, runs: int) -> dict[str, Any]:
    """Return per graph tokens per second of the loop, median of turns, predicted layers by kind, and scan findings.

    Args:
        graphs: form (see `decoder_of`) to file, all of one model.
        contract: of ours.
        runs: turns counted, after one warm-up.
    """
    known = read_json(Path(contract))
    ids = np.random.default_rng(0).integers(0, known["constants"]["vocab"], PROMPT).tolist()
    decoders = [decoder_of(file, known, form) for form, file in graphs.items()]
    caches = [decoder.step(ids, decoder.empty())[1] for decoder in decoders]
    seconds: list[list[float]] = [[] for _ in graphs]
    for turn in range(runs + 1):
        for at, decoder in enumerate(decoders):
            spent = _loop(decoder, caches[at], ids[:TOKENS])
            if turn:
                seconds[at].append(spent)
    rows = {}
    for (form, file), spent in zip(graphs.items(), seconds, strict=True):
        prediction = explain(Path(file)).prediction
        rate = round(TOKENS / statistics.median(spent), 2)
        counts = {"sentis_layers": prediction.layer_count or None, "layers": prediction.layers}
        found = Counter(finding.id for finding in scan(Path(file)))
        rows[form] = {"decode_tokens_per_second": rate} | counts | {"findings": found.total(), "found": found}
    return {"graphs": rows, "prompt": PROMPT, "tokens": TOKENS, "turns": runs}


def _loop(decoder: OnnxDecoder, cache: Any, ids: list[int]) -> float:
    """Return the seconds of one token after the other on top of a cache."""
    began = time.perf_counter()
    for token in ids:
        _, cache = decoder.step([token], cache)
    return time.perf_counter() - began
