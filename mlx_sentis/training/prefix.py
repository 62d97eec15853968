"""One shared prompt prefix per batch, run once.

The rows of a narrow data set begin with the same system block. Its keys and values are computed once for a batch
of one and broadcast to the rows through mlx-lm's own `cache=` argument; gradients flow back through the
broadcast. Right for any row whose labels lie behind the prefix. Prior art: Prefix Grouper (arXiv 2506.05433), for RL.

Legend: `B` rows, `P` prefix tokens, `S` tokens of a row behind the prefix, `K` key/value heads, `D` head width.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.mlx_lm_models import models_module

create_causal_mask = models_module("base").create_causal_mask


class KeepKeysValues:
    """A cache for the prefix pass: it keeps what one layer computed, [1, K, P, D] each."""

    offset = 0

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys, self.values = keys, values
        return keys, values

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> Any:
        if window_size is not None or return_array:
            return create_causal_mask(length, window_size=window_size)
        return "causal"


class SharedPrefix:
    """A cache for the rows' pass: it puts one prefix, broadcast to all rows, before each row's keys and values."""

    def __init__(self, kept: KeepKeysValues) -> None:
        assert kept.keys is not None and kept.values is not None
        self.keys, self.values = kept.keys, kept.values
        self.offset = kept.keys.shape[2]  # rotary positions go on behind the prefix

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return self._joined(self.keys, keys), self._joined(self.values, values)

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        # explicit: "causal" would leave the alignment of [S, P + S] to the kernel
        return create_causal_mask(length, offset=self.offset, window_size=window_size)

    @staticmethod
    def _joined(prefix: mx.array, rows: mx.array) -> mx.array:
        batch, heads, _, width = rows.shape
        wide = mx.broadcast_to(prefix, (batch, heads, prefix.shape[2], width))
        return mx.concatenate([wide, rows], axis=2)


def hidden_of_rows(model: CausalLM, prefix_embeddings: mx.array | None, row_embeddings: mx.array) -> mx.array:
    """Return the final hidden states [B, S, H] of the rows behind their shared prefix.

    Args:
        model: the decoder.
        prefix_embeddings: [1, P, H], or None when nothing is shared.
        row_embeddings: [B, S, H], the tokens behind the prefix, padded on the right.
    """
    if prefix_embeddings is None:
        return model.hidden(row_embeddings)
    kept = [KeepKeysValues() for _ in model.layers]
    model.hidden(prefix_embeddings, kept)  # lazy: what only the prefix's own outputs need is never computed
    return model.hidden(row_embeddings, [SharedPrefix(layer) for layer in kept])


def shared_prefix_tokens(rows: list[dict[str, Any]]) -> int:
    """Return how many leading tokens all rows share and may share.

    The last shared token must lie before the hidden state that predicts the first trained token of any row.
    """
    first = rows[0]["ids"]
    limit = min(row["trained"][0][0] - 1 for row in rows)
    for row in rows[1:]:
        limit = min(limit, len(row["ids"]))
        for position in range(limit):
            if row["ids"][position] != first[position]:
                limit = position
                break
    return max(0, min(limit, len(first)))
