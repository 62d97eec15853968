"""Convolutions."""

from __future__ import annotations

from typing import Any

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Unknown


def _given(n: Node, *names: str) -> dict[str, Any]:
    found = {name: list(n.attributes[name]) for name in names if name in n.attributes}
    return found | {"group": int(n.attributes.get("group", 1))}


def same_pads(n: Node, kernel: list[int], mode: str) -> list[int]:
    """Return the padding of SAME_UPPER or SAME_LOWER: target = ceil(in / stride), which dilations do not forbid.

    Raises:
        Unknown: a spatial size is not known.
    """
    shape = n.shape()
    spatial = shape[2:] if shape else ()
    if not spatial or any(size is None for size in spatial):
        raise Unknown(f"{n.op} {n.label!r}: {mode} of a spatial size that is not known")
    strides = n.attributes.get("strides", [1] * len(spatial))
    dilations = n.attributes.get("dilations", [1] * len(spatial))
    before, after = [], []
    for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        target = -(-int(size or 0) // stride)
        total = max(0, (target - 1) * stride + dilation * (k - 1) + 1 - int(size or 0))
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before + after


@form(
    "Conv",
    how="identical",
    says="1 to 3 dimensions, groups, dilations; SAME with dilations too; the kernel's shape is the weight's",
)
def conv(n: Node) -> None:
    n.floats(0, 1, 2)
    given = _given(n, "dilations", "pads", "strides")
    mode = str(n.attributes.get("auto_pad", "NOTSET"))
    if mode.startswith("SAME"):
        shape = n.shape(1)
        if shape is None or any(size is None for size in shape):
            raise Unknown(f"Conv {n.label!r}: {mode} with a kernel whose shape is not known")
        given["pads"] = same_pads(n, [int(size or 0) for size in shape[2:]], mode)
    elif mode == "VALID":
        given.pop("pads", None)
    n.put("Conv", *n.inputs, **given)


@form("ConvTranspose", says="output_shape is ignored; SAME gives in·stride")
def conv_transpose(n: Node) -> None:
    n.floats(0, 1, 2)
    given = _given(n, "dilations", "pads", "strides", "output_padding")
    mode = str(n.attributes.get("auto_pad", "NOTSET"))
    if mode != "NOTSET":
        given.pop("pads", None)
        given["auto_pad"] = mode
    n.put("ConvTranspose", *n.inputs, **given)
    if "CONVTRANSPOSE.3D_CPU" in n.found:
        n.unknown_if(n.graph.const(True, "bool"), "a padded depth is suspected to be read at a wrong stride on the CPU")
