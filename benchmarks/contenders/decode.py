"""Greedy decoding with a K/V cache: the exported graph in ONNX Runtime, or the original in transformers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contenders.timing import timed
from weights_bridge.files import read_json


def measure(runtime: str, graph: str, contract: str, original: str, ids: list[int], tokens: int, runs: int) -> Any:
    """Return tokens per second of prefill and of the loop, and the ids chosen.

    The loop's rate is `tokens` over the difference between a whole answer and one that ends after its first token,
    medians of both: the two runtimes are asked the same way.

    Args:
        runtime: `onnx` or `transformers`.
        graph: the ONNX file.
        contract: its contract.
        original: the directory whose weights are in it.
        ids: the prompt.
        tokens: how many to add after the first.
        runs: counted answers.
    """
    answer = _onnx(graph, contract) if runtime == "onnx" else _transformers(original)
    first, short = timed(lambda: answer(ids, 1), runs)
    chosen, whole = timed(lambda: answer(ids, 1 + tokens), runs)
    prefill = statistics.median(short)
    loop = max(statistics.median(whole) - prefill, 1e-9)
    return {
        "prefill_tokens_per_second": round(len(ids) / prefill, 1),
        "decode_tokens_per_second": round(tokens / loop, 1),
        "ids": chosen,
        "first_is_same": chosen[:1] == first,
    }


def _onnx(graph: str, contract: str) -> Callable[[list[int], int], list[int]]:
    from parity.runners.onnx_decoder import OnnxDecoder

    decoder = OnnxDecoder(Path(graph), read_json(Path(contract)))
    return lambda ids, count: decoder.greedy(ids, count).ids


def _transformers(original: str) -> Callable[[list[int], int], list[int]]:
    from parity.runners.torch_causal_lm import TorchCausalLM

    model = TorchCausalLM(Path(original))
    return lambda ids, count: model.greedy(ids, count)[0]
