"""Norms of the rows and columns of V = W + U D, without building V.

D is `down` [r, in] and U is `up` [out, r], the adapter's scale already in it. With ⊙ elementwise:

- rows: ‖V_i‖² = ‖W_i‖² + 2 Σ_r (W Dᵀ ⊙ U)_ir + Σ_r (U (D Dᵀ) ⊙ U)_ir;
- columns of diag(d) V: Σ_i d_i² W_ij² + 2 Σ_r ((d² U)ᵀ W ⊙ D)_rj + Σ_r ((Uᵀ d² U) D ⊙ D)_rj.

What depends on W alone is computed once, in fp32, except the first column term of BoRA: there d changes with every
update, and W² is taken a chunk of rows at a time.

The relative error is fp32's times (‖W‖² + ‖U D‖²) / ‖V‖²: near 1 in training, large only where the adapter takes a row
or column of W away.

Legend: `out`, `in` the sides of W, `r` rank.
"""

from __future__ import annotations

import mlx.core as mx

from mlx_sentis.training.adapters.frozen import FrozenMatrix

LEAST_NORM = 1e-12  # added to each norm, as `weights_bridge.merge` does


def row_norm(right: mx.array, squares: mx.array, down: mx.array, up: mx.array) -> mx.array:
    """Return the norm of each row of V, [out].

    Args:
        right: W downᵀ [out, r].
        squares: Σ_j W_ij² [out].
        down: [r, in].
        up: [out, r].
    """
    cross = mx.sum(right * up, axis=1)
    square = mx.sum((up @ (down @ down.T)) * up, axis=1)
    return _root(squares, 2 * cross + square)


def column_norm(weight: FrozenMatrix, squares: mx.array, down: mx.array, up: mx.array) -> mx.array:
    """Return the norm of each column of V, [in].

    Args:
        weight: W.
        squares: Σ_i W_ij² [in].
        down: [r, in].
        up: [out, r].
    """
    return _columns(weight, squares, down, up, up)


def scaled_column_norm(weight: FrozenMatrix, factor: mx.array, down: mx.array, up: mx.array) -> mx.array:
    """Return the norm of each column of diag(factor) V, [in].

    Args:
        weight: W.
        factor: d [out].
        down: [r, in].
        up: [out, r].
    """
    squared = mx.square(factor)
    return _columns(weight, weight.column_squares(squared), down, up, squared[:, None] * up)


def _columns(weight: FrozenMatrix, squares: mx.array, down: mx.array, up: mx.array, weighted: mx.array) -> mx.array:
    cross = mx.sum(weight.left(weighted) * down, axis=0)
    square = mx.sum(((up.T @ weighted) @ down) * down, axis=0)
    return _root(squares, 2 * cross + square)


def _root(squares: mx.array, change: mx.array) -> mx.array:
    """Return √(squares + change) + ε, held at a millionth of W's own norm: less than that is rounding."""
    return mx.sqrt(mx.maximum(squares + change, 1e-12 * squares + 1e-30)) + LEAST_NORM
