"""Cross-entropy of logits, reduced in two levels.

MLX's CPU backend sums naively: one sum over 49,152 logits is 1.4e-4 off in the softmax. 256 block sums that are
then summed bring the worst gradient of SmolLM2 from 85 to 129 dB against float64.

Legend: `N` labelled positions, `V` vocabulary.
"""

from __future__ import annotations

import mlx.core as mx

BLOCKS = 256


def sum_in_blocks(terms: mx.array) -> mx.array:
    """Return Σ over the last axis, [N, V] → [N], summed by blocks."""
    count, vocabulary = terms.shape
    width = -(-vocabulary // BLOCKS)
    if width * BLOCKS != vocabulary:  # zeros add nothing to the sum
        terms = mx.pad(terms, [(0, 0), (0, width * BLOCKS - vocabulary)])
    return terms.reshape(count, BLOCKS, width).sum(axis=-1).sum(axis=-1)


def logsumexp_in_blocks(logits: mx.array) -> mx.array:
    """Return log Σ exp(logits) over the last axis, [N, V] → [N], summed by blocks."""
    peak = mx.stop_gradient(mx.max(logits, axis=-1, keepdims=True))
    return mx.log(sum_in_blocks(mx.exp(logits - peak))) + peak[:, 0]


def cross_entropy_sum(logits: mx.array, labels: mx.array, weights: mx.array) -> mx.array:
    """Return Σ weights · (logsumexp − logit of the label) in fp32.

    Args:
        logits: [N, V].
        labels: [N] token ids.
        weights: [N], 1 for a label, 0 for padding of N.
    """
    logits = logits.astype(mx.float32)
    chosen = mx.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return mx.sum(weights * (logsumexp_in_blocks(logits) - chosen))
