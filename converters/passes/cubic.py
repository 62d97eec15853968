"""Cubic upsampling by a whole number of a picture whose size is not known, as one Conv and DepthToSpace.

Every pixel of the new picture lies at one of s · s places between old ones, and each place has the same 5 x 5 weights
everywhere. Shapes: N pictures, C channels, s the scale. [N, C, H, W] is padded by repeating its edge, as cubic
sampling clamps, convolved to s · s channels for each, and these are dealt out as pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.scan.view import Place

REACH = 2  # a new pixel lies less than one from an old one, and four taps reach two further
PROBE = 9  # pixels of the axis that weights are read from: its middle sees no edge
SHIFTED = ("half_pixel", "pytorch_half_pixel", "asymmetric")  # the same weights at every pixel
LARGEST = 8  # scale: the Conv has its square times the channels


def by_convolution(place: Place, emit: Emit, scale: int, matrix: Callable[[int, int], np.ndarray]) -> None:
    """Write Pad, Conv and DepthToSpace.

    Args:
        place: a Resize of the last two axes by `scale`.
        emit: takes the nodes.
        scale: pixels for each old one, along both axes.
        matrix: (size, scale) to the interpolation of one axis, [size, scale · size].

    Raises:
        Refusal: the weights are not the same everywhere, or the channels are not known.
    """
    shape, given = place.shape(0) or (), place.attributes
    if given.get("coordinate_transformation_mode", "half_pixel") not in SHIFTED or given.get("exclude_outside", 0):
        raise Refusal("its weights change with the size, which is not known; fix it (graph fix-shape)")
    if len(shape) != 4 or shape[1] is None or scale > LARGEST:
        raise Refusal("its channels are not known, or its scale is too large")
    middle = PROBE // 2
    taps = matrix(PROBE, scale)[middle - REACH : middle + REACH + 1, middle * scale : (middle + 1) * scale]  # [5, s]
    kernels = np.einsum("ai,bj->ijab", taps, taps).reshape(scale * scale, 1, 2 * REACH + 1, 2 * REACH + 1)
    weights = np.tile(kernels, (shape[1], 1, 1, 1)).astype(emit.dtype(place.name(0)))
    edges = emit.ints(0, 0, REACH, REACH, 0, 0, REACH, REACH)
    padded = emit("Pad", place.name(0), edges, mode="edge")
    made = emit("Conv", padded, emit.array(weights), group=shape[1])
    emit("DepthToSpace", made, to=place.node.output[0], blocksize=scale, mode="CRD")
