"""A frozen layer as a matrix W [out, in], without building more of it than a product needs.

One class per kind of layer. A Conv1d's matrix has in = channels · taps in torch's order (MLX stores [out, taps,
channels]), so that the interchange file is an identity.

Legend: `out`, `in` the matrix's sides, `r` rank, `N` positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from weights_bridge.errors import StageError

CHUNK = 1 << 20  # numbers of W that are wide at once: 4 MiB of fp32
WIDE_FROM = 4  # rows of a product from which dequantising first is faster on the CPU


class DenseMatrix:
    """An `nn.Linear`.

    Args:
        layer: it is read at each call, so that weights that are loaded later count.
    """

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.out, self.width = layer.weight.shape

    def apply(self, x: mx.array, columns: mx.array | None) -> mx.array:
        """Return x (W ⊙ columns)ᵀ, without the layer's bias."""
        return (x if columns is None else x * columns) @ self.layer.weight.T

    def apply_and_right(self, x: mx.array, down: mx.array) -> tuple[mx.array, mx.array]:
        """Return x Wᵀ and W downᵀ [out, r]."""
        return self.apply(x, None), self.right(down)

    def low_rank(self, x: mx.array, down: mx.array, up: mx.array) -> mx.array:
        """Return x (up down)ᵀ with down [r, in], up [out, r]."""
        return (x @ down.T) @ up.T

    def right(self, down: mx.array) -> mx.array:
        """Return W downᵀ [out, r]."""
        return self.layer.weight @ down.T

    def left(self, up: mx.array) -> mx.array:
        """Return upᵀ W [r, in]."""
        return up.T @ self.layer.weight

    def rows(self, start: int, end: int) -> mx.array:
        """Return some rows of W in fp32, [end − start, in]."""
        return self.layer.weight[start:end].astype(mx.float32)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of rows that together hold W, `CHUNK` numbers each."""
        height = max(1, CHUNK // self.width)
        for start in range(0, self.out, height):
            yield start, min(self.out, start + height)

    def row_squares(self) -> mx.array:
        """Return Σ_j W_ij², [out]."""
        return mx.concatenate([mx.sum(mx.square(self.rows(*span)), axis=1) for span in self.chunks()])

    def column_squares(self, weights: mx.array) -> mx.array:
        """Return Σ_i weights_i W_ij² [in] of weights [out], a chunk of rows at a time.

        The squares are not kept for the backward pass, they are taken again there.
        """

        def of(start: int, end: int) -> Callable[[mx.array], mx.array]:
            return mx.checkpoint(lambda part: part @ mx.square(self.rows(start, end)))

        total = mx.zeros((self.width,))
        for start, end in self.chunks():
            total = total + of(start, end)(weights[start:end])
        return total


class QuantizedMatrix(DenseMatrix):
    """An `nn.QuantizedLinear` of any width and mode.

    On Metal products go through MLX's quantised kernels. Its CPU kernel takes 8 ms a row for 2048 × 2048 at 4 bits,
    and 14 ms make W wide once: there W is made for each product and again for the backward pass, never kept.
    """

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.out, self.width = layer.weight.shape[0], layer.weight.shape[1] * 32 // layer.bits

    def _should_widen(self, x: mx.array) -> bool:
        return mx.default_device() == mx.cpu and x.size > WIDE_FROM * x.shape[-1]

    def apply_and_right(self, x: mx.array, down: mx.array) -> tuple[mx.array, mx.array]:
        if not self._should_widen(x):
            return super().apply_and_right(x, down)

        def both(x: mx.array, down: mx.array) -> list[mx.array]:
            wide = self._wide()
            return [x @ wide.T, wide @ down.T]

        y, right = mx.checkpoint(both)(x, down)
        return y, right

    def _product(self, x: mx.array, transpose: bool) -> mx.array:
        if self._should_widen(x):
            return mx.checkpoint(lambda x: x @ (self._wide().T if transpose else self._wide()))(x)
        q = self.layer
        options = {"group_size": q.group_size, "bits": q.bits, "mode": q.mode}
        return mx.quantized_matmul(x, q.weight, q.scales, q.get("biases"), transpose=transpose, **options)

    def _wide(self) -> mx.array:
        return self.rows(0, self.out)

    def apply(self, x: mx.array, columns: mx.array | None) -> mx.array:
        return self._product(x if columns is None else x * columns, transpose=True)

    def right(self, down: mx.array) -> mx.array:
        return self._product(down, transpose=True).T

    def left(self, up: mx.array) -> mx.array:
        return self._product(up.T, transpose=False)

    def rows(self, start: int, end: int) -> mx.array:
        q = self.layer
        biases = q.get("biases")
        options = {"group_size": q.group_size, "bits": q.bits, "mode": q.mode}
        scales = q.scales[start:end]
        if biases is not None:  # affine: half-precision scales would round W, which the kernels do not
            scales, biases = scales.astype(mx.float32), biases[start:end].astype(mx.float32)
        return mx.dequantize(q.weight[start:end], scales, biases, **options).astype(mx.float32)


class ConvMatrix(DenseMatrix):
    """An `nn.Conv1d`.

    With more than one tap, W ⊙ columns is built: one number of `columns` meets the input once per tap, so it cannot
    be moved onto the input. So is up · down where there are groups, since a group sees its own channels only.
    """

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.out, self.taps, self.channels = layer.weight.shape
        self.width = self.channels * self.taps

    def kernel(self, matrix: mx.array) -> mx.array:
        """Return a matrix [n, in] as MLX's kernel [n, taps, channels]."""
        return matrix.reshape(-1, self.channels, self.taps).swapaxes(1, 2)

    def rows(self, start: int, end: int) -> mx.array:
        part = self.layer.weight[start:end].astype(mx.float32)
        return part.swapaxes(1, 2).reshape(end - start, self.width)

    def _convolve(self, x: mx.array, kernel: mx.array) -> mx.array:
        c = self.layer
        return mx.conv1d(x, kernel, c.stride, c.padding, c.dilation, c.groups)

    def apply(self, x: mx.array, columns: mx.array | None) -> mx.array:
        kernel = self.layer.weight
        if columns is not None:
            kernel = kernel * self.kernel(columns[None])
        return self._convolve(x, kernel)

    def low_rank(self, x: mx.array, down: mx.array, up: mx.array) -> mx.array:
        if self.layer.groups > 1:
            return self._convolve(x, self.kernel(up @ down))
        return self._convolve(x, self.kernel(down)) @ up.T

    def right(self, down: mx.array) -> mx.array:
        return self._flat() @ down.T

    def left(self, up: mx.array) -> mx.array:
        return up.T @ self._flat()

    def _flat(self) -> mx.array:
        return self.layer.weight.swapaxes(1, 2).reshape(self.out, self.width)


FrozenMatrix = DenseMatrix


def matrix_of(layer: nn.Module) -> FrozenMatrix:
    """Return a layer as a matrix.

    Raises:
        StageError: no kind of layer that adapters know.
    """
    for kind, matrix in ((nn.QuantizedLinear, QuantizedMatrix), (nn.Conv1d, ConvMatrix), (nn.Linear, DenseMatrix)):
        if isinstance(layer, kind):
            return matrix(layer)
    hint = "adapters go on Linear, Conv1d and QuantizedLinear"
    raise StageError(f"{type(layer).__name__} cannot be adapted", hint=hint)
