"""How torch's axes become MLX's, and back: permutations of whole elements, so that every bit survives both ways.

MLX keeps channels last. Legend: `O` outputs, `I` inputs, `K` taps, `H`/`W` height and width of a kernel.

| layout | torch | MLX |
|---|---|---|
| `same` | Linear [out, in], embeddings, norms | the same |
| `conv1d` | Conv1d OIK | OKI |
| `conv2d` | Conv2d OIHW | OHWI |
| `conv_transpose1d` | ConvTranspose1d IOK | OKI |
| `conv_transpose2d` | ConvTranspose2d IOHW | OHWI |

Rotary rows: torch's classes pair coordinate j of a head with j + D/2 (halves), MLX's `traditional=True` pairs 2j with
2j + 1 (interleaved). Both compute the same attention once the rows of q and k are dealt out accordingly.
"""

from __future__ import annotations

import numpy as np

from weights_bridge.compare import Array

MLX_AXES: dict[str, tuple[int, ...]] = {
    "same": (),
    "conv1d": (0, 2, 1),
    "conv2d": (0, 2, 3, 1),
    "conv_transpose1d": (1, 2, 0),
    "conv_transpose2d": (1, 2, 3, 0),
}


def mlx_from_torch(array: Array, layout: str) -> Array:
    """Return an array in MLX's order of axes; `same` is the array itself."""
    axes = MLX_AXES[layout]
    return _permuted(array, axes) if axes else array


def torch_from_mlx(array: Array, layout: str) -> Array:
    """Return an array in torch's order of axes: the inverse permutation, derived."""
    axes = MLX_AXES[layout]
    return _permuted(array, tuple(int(axis) for axis in np.argsort(axes))) if axes else array


def mlx_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the shape that `mlx_from_torch` gives."""
    return tuple(shape[axis] for axis in MLX_AXES[layout]) or shape


def interleaved_from_halves(array: Array, heads: int, rotary: int) -> Array:
    """Return the rows of q or k as `traditional=True` wants them.

    Args:
        array: weight [heads · D, in] or bias [heads · D].
        heads: how many.
        rotary: how many coordinates of a head are rotated; the rest stays.
    """
    return _by_head(array, heads, rotary, (2, rotary // 2))


def halves_from_interleaved(array: Array, heads: int, rotary: int) -> Array:
    """Return the rows of q or k as torch's classes want them; the inverse of `interleaved_from_halves`."""
    return _by_head(array, heads, rotary, (rotary // 2, 2))


def _by_head(array: Array, heads: int, rotary: int, sides: tuple[int, int]) -> Array:
    rows = np.arange(len(array)).reshape(heads, -1)
    turned = rows[:, :rotary].reshape(heads, *sides).swapaxes(1, 2).reshape(heads, -1)
    order = np.concatenate([turned, rows[:, rotary:]], axis=1).reshape(-1)
    return _bits(array)[order].view(array.dtype)


def _permuted(array: Array, axes: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(_bits(array).transpose(axes)).view(array.dtype)


def _bits(array: Array) -> Array:
    """Return the same bytes as unsigned integers: what is moved so is never converted."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def folded_weight_norm(g: Array, v: Array) -> Array:
    """Return the weight of a weight-normalised layer, g v / ‖v‖ (Salimans & Kingma 2016, arXiv 1602.07868, eq. 2).

    One way only: the product's bits do not tell g and v apart. A table that must come back keeps both.

    Args:
        g: [out, 1, …], torch's `weight_g` or `parametrizations.weight.original0`.
        v: [out, …], torch's `weight_v` or `parametrizations.weight.original1`.
    """
    wide = v.astype(np.float64)
    norm = np.sqrt(np.square(wide).sum(axis=tuple(range(1, v.ndim)), keepdims=True))
    return (g.astype(np.float64) * wide / norm).astype(v.dtype)
