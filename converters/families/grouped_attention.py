"""Attention with grouped keys and values that are not repeated for each query head. Imports torch at the top.

transformers' eager form copies every key and value once per query head of its group (Expand, then Reshape). The
query heads of a group lie next to each other, so they can be rows of one product with the group's keys instead: the
same sums, no copies of the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

NAME = "mlx_sentis_grouped"


def grouped_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as transformers' eager form does, without dropout.

    Legend: `H` query heads, `K` key/value heads, G = H / K, `q` new tokens, `t` all tokens, `D` head width.

    Args:
        module: the attention module.
        query: [1, H, q, D].
        key: [1, K, t, D].
        value: [1, K, t, D].
        attention_mask: [1, 1, q, t], added to the scores.
        scaling: of the scores; D^-1/2 when None.
        softcap: a bound c of the scores, c · tanh(scores / c); None without one.

    Returns:
        [1, q, H, D], and no weights.
    """
    rows, heads, _q, width = query.shape
    groups, total = key.shape[1], key.shape[2]
    scale = width**-0.5 if scaling is None else scaling
    if groups != heads:
        query = query.reshape(rows, groups, -1, width)  # [1, K, G·q, D]
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if groups != heads:
        scores = scores.reshape(rows, heads, -1, total)
    weights = nn.functional.softmax(scores + attention_mask, dim=-1)
    if groups != heads:
        weights = weights.reshape(rows, groups, -1, total)
    out = torch.matmul(weights, value)
    if groups != heads:
        out = out.reshape(rows, heads, -1, width)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
