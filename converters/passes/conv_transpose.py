"""ConvTranspose with output_shape, written with the padding that gives it; in 3D the padded depth as a Slice.

Why: Sentis ignores output_shape, and on the CPU is suspected to read slices of a padded depth at a wrong stride.
Padding of a ConvTranspose is what is cut off its result, so the depth is computed whole and cut behind it. Does not
fire where the input's size is not known, and where the wanted output is larger than the whole result.
"""

from __future__ import annotations

from typing import Any

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write explicit pads, or the depth without them. Formula: ONNX operator definition of ConvTranspose."""
    if "output_shape" not in place.attributes:
        _whole_depth(place, emit)
        return
    given, shape, weights = dict(place.attributes), place.shape(0), place.shape(1)
    wanted = list(given.pop("output_shape"))
    lower = given.pop("auto_pad", "NOTSET") != "SAME_UPPER"
    given.pop("pads", None)
    if shape is None or weights is None or None in shape[2:] or None in weights[2:]:
        raise Refusal("the sizes of its input or its weights are not known")
    count = len(shape) - 2
    wanted = wanted[-count:]
    kernel = given.get("kernel_shape") or [size or 0 for size in weights[2:]]
    strides, dilations, more = (
        list(given.pop(name, None) or [default] * count)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    begin, end = [], []
    for axis in range(count):
        whole = strides[axis] * ((shape[axis + 2] or 0) - 1) + more[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = whole - wanted[axis]
        if total < 0:
            more[axis] -= total
            total = 0
        if more[axis] >= max(strides[axis], dilations[axis]):
            raise Refusal(f"spatial axis {axis}: the whole result has {whole}, wanted are {wanted[axis]}")
        small = total // 2
        begin.append(total - small if lower else small)
        end.append(small if lower else total - small)
    emit("ConvTranspose", *place.node.input, to=place.node.output[0], **given, pads=[*begin, *end],
         strides=strides, dilations=dilations, output_padding=more if any(more) else None)  # fmt: skip


def _whole_depth(place: Place, emit: Emit) -> None:
    """Write a 3D ConvTranspose without padding of its depth, and a Slice behind it."""
    pads = list(place.attributes["pads"])
    given: dict[str, Any] = place.attributes | {"pads": [0, *pads[1:3], 0, *pads[4:]]}
    whole = emit("ConvTranspose", *place.node.input, **given)
    emit.sliced(whole, [pads[0]], [-pads[3] or OPEN], [2], to=place.node.output[0])


OPEN = 2**31 - 1  # the end of a Slice that goes to the end of its axis
PASS = node_pass(
    "conv_transpose", "Sentis ignores output_shape of ConvTranspose", write,
    mends=["CONVTRANSPOSE.OUTPUT_SHAPE", "CONVTRANSPOSE.3D_CPU"],
)  # fmt: skip
