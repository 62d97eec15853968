"""The fixed bases of the -XS kinds: a weight's first singular vectors.

Legend: `out`, `in` the sides of W, `r` rank.
"""

from __future__ import annotations

import numpy as np

from weights_bridge.compare import Array


def singular_bases(weight: Array, rank: int) -> tuple[Array, Array]:
    """Return U [out, r] and V [in, r] in fp32.

    Singular vectors are given up to a sign: each pair is turned so that the largest entry of its U column is positive.
    numpy's thin decomposition: MLX's returns the whole square matrices.

    Args:
        weight: W [out, in].
        rank: r, at most min(out, in).
    """
    u, _, vh = np.linalg.svd(np.asarray(weight, np.float32), full_matrices=False)
    largest = np.take_along_axis(u, np.abs(u).argmax(axis=0)[None], axis=0)[0]
    sign = np.where(largest < 0, np.float32(-1), np.float32(1))
    return np.ascontiguousarray((u * sign)[:, :rank]), np.ascontiguousarray((vh * sign[:, None])[:rank].T)
