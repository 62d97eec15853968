"""Made inputs of a decoder graph, for a harness that has no recorded fixtures: a prompt, and a step behind a cache."""

from __future__ import annotations

import numpy as np

from converters.unity.model import GraphContract
from weights_bridge.compare import Array

SEED = 7
TOKENS = 16  # of the prompt; past the window where there is one
LONGEST = 640  # tokens: a mask grows with their square


def made_inputs(graph: GraphContract) -> dict[str, dict[str, Array]]:
    """Return fixture name to inputs: ids drawn from the vocabulary, and for the step keys and values around 0.

    `input_ids`, `position_ids` [1, q] int64, masks [1, 1, q, p + q] and caches [1, kv_heads, p, head_dim] float32.
    """
    tokens = min(max(TOKENS, graph.window + 3), LONGEST)
    return {"made-prompt": _inputs(graph, tokens, 0), "made-step": _inputs(graph, 1, tokens)}


def _inputs(graph: GraphContract, query: int, past: int) -> dict[str, Array]:
    drawn = np.random.default_rng(SEED + past)
    sizes, masked = graph.sizes, float(graph.document.get("masked", -1e9))
    found: dict[str, Array] = {
        "input_ids": drawn.integers(0, sizes["vocab"], (1, query)),
        "position_ids": np.arange(past, past + query)[None],
    }
    at, seen = np.arange(past, past + query)[:, None], np.arange(past + query)[None]
    for name, window in zip(graph.masks, graph.mask_windows, strict=True):
        visible = (seen <= at) & ((seen > at - window) | (window == 0))
        found[name] = np.where(visible, 0, masked).astype(np.float32)[None, None]
    shape = (1, sizes["kv_heads"], past, sizes["head_dim"])
    return found | {name: drawn.standard_normal(shape, np.float32) for name in graph.cache_names[0]}
