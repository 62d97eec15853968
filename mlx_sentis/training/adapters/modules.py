"""A frozen layer with an adapter beside it.

y = d_out ⊙ ((x ⊙ d_in) Wᵀ + (x ⊙ d_in) (U D)ᵀ) + b, where d_out and d_in are the magnitudes over the norms of
`norms.py` (1 for kinds without), D = A and U = s B, or for the -XS kinds D = Vᵀ and U = s U M.

The norms are constants for the gradient unless `attached` (the DoRA paper's §4.3; PEFT detaches them too).

Legend: `in`, `out` the sides of the layer's matrix, `r` rank, s the scale.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_sentis.training.adapters import norms
from mlx_sentis.training.adapters.frozen import matrix_of
from mlx_sentis.training.adapters.svd import singular_bases
from weights_bridge.adapter_kinds import Kind

Factors = tuple[mx.array, mx.array, mx.array | None, mx.array | None]


class Last:
    """The factors made last, for as long as what they were made of is the very same arrays and numbers.

    An update, a load or a trace of a gradient puts other arrays in their place. A class of its own, so that MLX does
    not take what it holds for a part of the module's state.
    """

    def __init__(self) -> None:
        self._made_of: list[Any] = []
        self._factors: Factors | None = None

    def of(self, made_of: list[Any]) -> Factors | None:
        same = len(made_of) == len(self._made_of) and all(map(operator.is_, made_of, self._made_of))
        return self._factors if same else None

    def keep(self, made_of: list[Any], factors: Factors) -> None:
        self._made_of, self._factors = made_of, factors


class Adapted(nn.Module):
    """A frozen Linear, Conv1d or QuantizedLinear with an adapter.

    Args:
        base: the layer to wrap; it is frozen.
        kind: which formula.
        rank: r.
        scale: s.
        key: random key of A's initial values.
        dropout: share of the adapter's input that is set to 0, in training mode only.
        attached: whether gradients flow through the norms.
        find_bases: whether to decompose W for the -XS kinds; U and V stay zeros without.
    """

    def __init__(
        self,
        base: nn.Module,
        kind: Kind,
        rank: int,
        scale: float,
        key: mx.array,
        *,
        dropout: float = 0.0,
        attached: bool = False,
        find_bases: bool = True,
    ) -> None:
        super().__init__()
        self.base = base.freeze()
        self.kind, self.scale, self.dropout, self.attached = kind, scale, dropout, attached
        self.matrix = matrix_of(base)
        self._last = Last()
        self._start(rank, key, find_bases)
        if kind.has_norm:
            self._start_magnitudes()

    def _start(self, rank: int, key: mx.array, find_bases: bool) -> None:
        out, width = self.matrix.out, self.matrix.width
        if self.kind.fixed_bases:
            self.U, self.V = mx.zeros((out, rank)), mx.zeros((width, rank))
            if find_bases:
                dense = np.concatenate([np.array(self.matrix.rows(*span)) for span in self.matrix.chunks()])
                self.U, self.V = map(mx.array, singular_bases(dense, rank))
            self.M_xs = mx.zeros((rank, rank))
            self.freeze(recurse=False, keys=["U", "V"])
        else:
            bound = 1 / math.sqrt(width)  # torch's kaiming_uniform with a = √5
            self.lora_A = mx.random.uniform(-bound, bound, (rank, width), key=key)
            self.lora_B = mx.zeros((out, rank))

    def _start_magnitudes(self) -> None:
        """Start at the norms of W, so that before the first update the layer is the base layer."""
        kind = self.kind
        if kind.rows:
            self._row_squares = self.matrix.row_squares()
            self[kind.row_magnitude] = mx.sqrt(self._row_squares)
        if kind.columns:
            self._column_squares = self.matrix.column_squares(mx.ones((self.matrix.out,)))
            self[kind.column_magnitude] = mx.sqrt(self._column_squares)

    def factors_of_change(self) -> tuple[mx.array, mx.array]:
        """Return D [r, in] and U [out, r], the scale in U: the layer's change is U D."""
        if self.kind.fixed_bases:
            return self.V.T, self.U @ (self.scale * self.M_xs)
        return self.lora_A, self.scale * self.lora_B

    def factors(self, right: mx.array | None = None) -> tuple[mx.array | None, mx.array | None]:
        """Return d_in [in] and d_out [out]; None stands for ones.

        Args:
            right: W Dᵀ [out, r], where it is known already.
        """
        down, up = self._of_norms()
        d_in = d_out = None
        if self.kind.rows:
            right = self.matrix.right(down) if right is None else right
            norm = norms.row_norm(right, self._row_squares, down, up)
            d_out = self[self.kind.row_magnitude] / norm
        if self.kind.columns:
            if d_out is None:
                norm = norms.column_norm(self.matrix, self._column_squares, down, up)
            else:
                rows = d_out if self.attached else mx.stop_gradient(d_out)
                norm = norms.scaled_column_norm(self.matrix, rows, down, up)
            d_in = self[self.kind.column_magnitude] / norm
        return d_in, d_out

    def _of_norms(self) -> tuple[mx.array, mx.array]:
        """Return D and U as the norms see them: constants, unless attached."""
        down, up = self.factors_of_change()
        return (down, up) if self.attached else (mx.stop_gradient(down), mx.stop_gradient(up))

    def effective_weight(self) -> mx.array:
        """Return what the layer multiplies by, as a matrix [out, in] in fp32."""
        down, up = self.factors_of_change()
        weight = mx.concatenate([self.matrix.rows(*span) for span in self.matrix.chunks()]) + up @ down
        d_in, d_out = self.factors()
        weight = weight if d_out is None else d_out[:, None] * weight
        return weight if d_in is None else weight * d_in

    def __call__(self, x: mx.array) -> mx.array:
        y, (down, up, d_in, d_out) = self._product(x)
        y = y + self.matrix.low_rank(self._dropped(x), down if d_in is None else down * d_in, up)
        if d_out is not None:
            y = y * d_out
        if "bias" in self.base:
            y = y + self.base["bias"]
        return y.astype(x.dtype)

    def _product(self, x: mx.array) -> tuple[mx.array, Factors]:
        """Return (x ⊙ d_in) Wᵀ, and D, U, d_in, d_out, which the passes of a step share: they hang on no input."""
        made_of = self._made_of()
        factors = self._last.of(made_of)
        if factors is not None:
            return self.matrix.apply(x, factors[2]), factors
        change = self.factors_of_change()
        if self.kind.rows and not self.kind.columns:
            y, right = self.matrix.apply_and_right(x, self._of_norms()[0])
            factors = (*change, *self.factors(right))
        else:
            factors = (*change, *self.factors())
            y = self.matrix.apply(x, factors[2])
        self._last.keep(made_of, factors)
        return y, factors

    def _made_of(self) -> list[Any]:
        """Return what the factors are computed from: arrays, the scale, and whether norms have a gradient."""
        own = (value for name, value in self.items() if isinstance(value, mx.array) and not name.startswith("_"))
        return [self.base["weight"], *own, self.scale, self.attached]

    def _dropped(self, x: mx.array) -> mx.array:
        if not (self.training and self.dropout):
            return x
        keep = 1 - self.dropout
        key = self.get("_dropout_key")  # without one, MLX's global random state decides
        return mx.where(mx.random.bernoulli(keep, x.shape, key=key), x / keep, 0.0)
