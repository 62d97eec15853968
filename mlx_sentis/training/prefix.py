"""Shared segments run once, the rows on top of them.

Each pass is mlx-lm's own definition with its own `cache=` protocol: the cache of a pass puts the keys and values
of its ancestors, broadcast to its rows, before its own. Gradients flow back through the broadcast. Right for any row
whose labels lie behind what is shared (`mlx_sentis.training.sharing`).

Legend: `R` rows of a pass, `S` its tokens, `P` tokens of its ancestors, `K` key/value heads, `D` head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.mlx_lm_models import models_module
from mlx_sentis.training.streams import on_stream

create_causal_mask = models_module("base").create_causal_mask


class SegmentCache:
    """The cache of one layer in one pass.

    Args:
        parent: the same layer's cache in the parent's pass, None at the beginning of the rows.
    """

    def __init__(self, parent: SegmentCache | None = None) -> None:
        self.parent = parent
        self.offset = 0 if parent is None else parent.length  # rotary positions go on behind the ancestors
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def length(self) -> int:
        """P + S, once the pass has run."""
        assert self.keys is not None
        return self.keys.shape[2]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the ancestors' and the own keys and values, [R, K, P + S, D] each."""
        if self.parent is not None:
            keys, values = joined(self.parent.keys, keys), joined(self.parent.values, values)
        self.keys, self.values = keys, values
        return keys, values

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        # explicit: "causal" would leave the alignment of [S, P + S] to the kernel
        return create_causal_mask(length, offset=self.offset, window_size=window_size)


class ReadingCache:
    """A cache for queries from position `first` of a pass on: keys and values are there already."""

    def __init__(self, cache: SegmentCache, first: int) -> None:
        self.cache, self.offset = cache, cache.offset + first

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array | None, mx.array | None]:
        return self.cache.keys, self.cache.values


class LastLayer:
    """The last layer of a pass whose hidden states are read from position `first` on.

    Keys and values are needed of every token, queries and all that follows only where somebody reads: the layer is
    built twice, and of each only that part is ever evaluated.
    """

    def __init__(self, layer: Any, first: int) -> None:
        self._layer, self._first = layer, first

    def __call__(self, x: mx.array, mask: mx.array, cache: SegmentCache) -> mx.array:
        self._layer(x, mask, cache)  # lazy: only its keys and values are used
        return self._layer(x[:, self._first :], mask[self._first :], ReadingCache(cache, self._first))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def joined(before: mx.array | None, own: mx.array) -> mx.array:
    """Return [1, K, P, D], broadcast to R rows, and [R, K, S, D] as [R, K, P + S, D]."""
    assert before is not None
    rows, heads, _, width = own.shape
    wide = mx.broadcast_to(before, (rows, heads, before.shape[2], width))
    return mx.concatenate([wide, own], axis=2)


@contextmanager
def last_layer_read_from(model: CausalLM, first: int) -> Iterator[None]:
    """Let the last layer answer for the positions from `first` on only."""
    if first == 0:
        yield
        return
    inner, layers = model.network.model, model.layers
    inner.layers = [*layers[:-1], LastLayer(layers[-1], first)]
    try:
        yield
    finally:
        inner.layers = layers


def hidden_of_passes(
    model: CausalLM, embeddings: Sequence[mx.array], layout: Sequence[tuple[int, int, bool, int]]
) -> list[mx.array | None]:
    """Return the final hidden states [R, S − first, H] of each pass that is read, None for shared segments.

    Args:
        model: the decoder.
        embeddings: of each pass, [R, S, H].
        layout: (parent, first, leaf, stream) of each pass, see `batches.Pass`; parents come before children.
    """
    caches: list[list[SegmentCache]] = []
    found: list[mx.array | None] = []
    for inputs, (parent, first, leaf, number) in zip(embeddings, layout, strict=True):
        before = caches[parent] if parent >= 0 else [None] * len(model.layers)
        caches.append([SegmentCache(layer) for layer in before])
        with on_stream(number), last_layer_read_from(model, first):
            hidden = model.hidden(inputs, caches[-1])  # lazy: of a shared segment only keys and values are computed
        found.append(hidden if leaf else None)
    return found
