"""GridSample written with GatherND and a weighted sum.

Why: Sentis computes cubic sampling as linear (on GPUs of 2.4 and 2.5 it throws); opset 15, which 2.4 documents, has no
GridSample at all. Shapes: N pictures, C channels, P points, T taps of an axis (1 nearest, 2 linear, 4 cubic). Pixel
positions are computed in ONNX Runtime's order of operations, so that the same pixels are met. Does not fire on volumes
and where the size of the picture is not known.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import INT64, Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

CUBIC = -0.75  # Keys' coefficient, as ONNX defines it
MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names before opset 20
OFFSETS = {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}


def write(place: Place, emit: Emit) -> None:
    """Write the sampling."""
    sample(place, emit)


def sample(place: Place, emit: Emit) -> bool:
    """Write the sampling of [N, C, H, W] at [N, h, w, 2]."""
    shape, given = place.shape(0), place.attributes
    if shape is None or len(shape) != 4 or not shape[2] or not shape[3]:
        raise Refusal("volumes, or a picture whose size is not known")
    mode = MODES.get(given.get("mode", "linear"), given.get("mode", "linear"))
    padding, align = given.get("padding_mode", "zeros"), bool(given.get("align_corners", 0))
    if mode not in OFFSETS or padding not in ("zeros", "border", "reflection"):
        raise Refusal(f"mode {mode!r}, padding {padding!r}")
    emit.dtype(place.name(1))
    points = emit.reshaped(place.name(1), [0, -1, 2])
    axes = zip(emit.split(points, [1, 1], axis=2), (shape[3], shape[2]), strict=True)
    (columns, across), (rows, down) = (_taps(emit, at, size, mode, padding, align) for at, size in axes)
    width = emit.number(shape[3], place.name(1))
    flat = emit("Add", emit("Mul", emit.unsqueezed(rows, [3]), width), emit.unsqueezed(columns, [2]))
    count = len(OFFSETS[mode]) ** 2
    places = emit.cast(emit.reshaped(flat, [0, 0, count, 1]), INT64)
    pixels = emit("Transpose", emit.reshaped(place.name(0), [0, 0, -1]), perm=[0, 2, 1])  # [N, H · W, C]
    met = emit("GatherND", pixels, places, batch_dims=1)  # [N, P, T², C]
    weights = emit("Mul", emit.unsqueezed(down, [3]), emit.unsqueezed(across, [2]))
    weights = emit.reshaped(weights, [0, 0, 1, count])
    if place.view.type(place.name(0)) != place.view.type(place.name(1)):
        weights = emit.cast(weights, emit.element(place.name(0)))
    summed = emit("MatMul", weights, met)  # [N, P, 1, C]
    channels = emit("Transpose", emit.squeezed(summed, [2]), perm=[0, 2, 1])
    _shaped(place, emit, channels)
    return True


def _taps(emit: Emit, at: str, size: int, mode: str, padding: str, align: bool) -> tuple[str, str]:
    """Return positions and weights of the taps of one axis, both [N, P, T], from coordinates in −1…1, [N, P, 1]."""

    def number(value: float) -> str:
        return emit.number(value, at)

    if align:
        x = emit("Mul", emit("Div", emit("Add", at, number(1)), number(2)), number(size - 1))
    else:
        x = emit("Div", emit("Sub", emit("Mul", emit("Add", at, number(1)), number(size)), number(1)), number(2))
    if mode == "nearest":
        return _inside(emit, emit("Round", x), size, padding, align, "")
    floor = emit("Floor", x)
    offsets = emit.array(np.array(OFFSETS[mode], emit.dtype(at)))
    weights = _weights(emit, emit("Sub", x, floor), mode)
    return _inside(emit, emit("Add", floor, offsets), size, padding, align, weights)


def _weights(emit: Emit, t: str, mode: str) -> str:
    """Return the taps' weights from how far a point lies behind its floor."""
    one = emit.number(1, t)
    if mode == "linear":
        return emit("Concat", emit("Sub", one, t), t, axis=2)
    rest = emit("Sub", one, t)
    far = [_far(emit, emit("Add", distance, one)) for distance in (t, rest)]
    return emit("Concat", far[0], _near(emit, t), _near(emit, rest), far[1], axis=2)


def _near(emit: Emit, d: str) -> str:
    """Return ((a + 2) d − (a + 3)) d² + 1, for distances up to 1."""
    inner = emit("Sub", emit("Mul", d, emit.number(CUBIC + 2, d)), emit.number(CUBIC + 3, d))
    return emit("Add", emit("Mul", emit("Mul", inner, d), d), emit.number(1, d))


def _far(emit: Emit, d: str) -> str:
    """Return a (((d − 5) d + 8) d − 4), for distances from 1 to 2."""
    inner = emit("Add", emit("Mul", emit("Sub", d, emit.number(5, d)), d), emit.number(8, d))
    return emit("Mul", emit("Sub", emit("Mul", inner, d), emit.number(4, d)), emit.number(CUBIC, d))


def _inside(emit: Emit, x: str, size: int, padding: str, align: bool, weights: str) -> tuple[str, str]:
    """Return whole positions brought into the picture, and their weights; outside of it zeros weigh nothing."""
    if padding == "reflection":
        x = _reflected(emit, x, size, align)
    inside = emit.clipped(x, 0, size - 1)
    if padding != "zeros":
        return inside, weights or emit("Add", emit("Mul", inside, emit.number(0, x)), emit.number(1, x))
    counts = emit.cast(emit("Equal", inside, x), emit.element(x))
    return inside, emit("Mul", weights, counts) if weights else counts


def _reflected(emit: Emit, x: str, size: int, align: bool) -> str:
    """Return positions mirrored at the centres of the outer pixels, or at their outer edges."""
    if align and size == 1:
        return emit("Mul", x, emit.number(0, x))
    period = 2 * (size - 1) if align else 2 * size
    rounds = emit("Floor", emit("Div", x, emit.number(period, x)))
    once = emit("Sub", x, emit("Mul", rounds, emit.number(period, x)))
    return emit("Min", once, emit("Sub", emit.number(period if align else period - 1, x), once))


def _shaped(place: Place, emit: Emit, channels: str) -> None:
    """Write [N, C, P] as [N, C, h, w]."""
    grid, to = place.shape(1), place.node.output[0]
    if grid is not None and len(grid) == 4 and grid[1:3].count(None) <= 1:
        emit.reshaped(channels, [0, 0, *(-1 if size is None else size for size in grid[1:3])], to=to)
        return
    sizes = emit.sliced(emit("Shape", place.name(1)), [1], [3], [0])
    emit("Reshape", channels, emit("Concat", emit.ints(0, 0), sizes, axis=0), to=to)


PASS = node_pass(
    "grid_sample", "Sentis computes cubic sampling as linear", write,
    mends=["GRIDSAMPLE.CUBIC_CPU", "GRIDSAMPLE.CUBIC_GPU"],
)  # fmt: skip
