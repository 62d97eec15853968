"""The fixed bases of the -XS kinds: a weight's first singular vectors.

Legend: `out`, `in` the sides of W, `r` rank.
"""

from __future__ import annotations

import numpy as np

from weights_bridge.compare import Array

SMALLEST = 1e-5  # of the largest singular value; below it a Gram matrix no longer tells


def singular_bases(weight: Array, rank: int) -> tuple[Array, Array]:
    """Return U [out, r] and V [in, r] in fp32.

    Singular vectors are given up to a sign: each pair is turned so that the largest entry of its U column is positive.

    Args:
        weight: W [out, in].
        rank: r, at most min(out, in).
    """
    wide = np.asarray(weight, np.float64)
    u, v = _from_gram(wide, rank) or _decomposed(wide, rank)
    largest = np.take_along_axis(u, np.abs(u).argmax(axis=0)[None], axis=0)[0]
    sign = np.where(largest < 0, -1.0, 1.0)
    return np.ascontiguousarray(u * sign, np.float32), np.ascontiguousarray(v * sign, np.float32)


def _from_gram(weight: Array, rank: int) -> tuple[Array, Array] | None:
    """Return U and V from the eigenvectors of the smaller Gram matrix, None where a singular value is too small.

    In float64 that is more exact than a decomposition in fp32, and takes half its time for SmolLM2's shapes.
    """
    turned = weight.shape[0] > weight.shape[1]
    short = weight.T if turned else weight
    squares, vectors = np.linalg.eigh(short @ short.T)  # ascending
    values = np.sqrt(np.maximum(squares[::-1][:rank], 0))
    if not values[-1] > SMALLEST * values[0]:
        return None
    left = vectors[:, ::-1][:, :rank]
    right = (short.T @ left) / values
    return (right, left) if turned else (left, right)


def _decomposed(weight: Array, rank: int) -> tuple[Array, Array]:
    u, _, vh = np.linalg.svd(weight, full_matrices=False)
    return u[:, :rank], vh[:rank].T
