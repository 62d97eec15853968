"""Pools over windows: no ceil_mode, no dilations, padding never counts."""

from __future__ import annotations

from typing import Any

from parity.emulator.node import Node
from parity.emulator.operators import form


def window(n: Node) -> dict[str, Any]:
    """Return what the importer reads of a pool."""
    kernel = list(n.attributes["kernel_shape"])
    given: dict[str, Any] = {"kernel_shape": kernel, "strides": list(n.attributes.get("strides", [1] * len(kernel)))}
    mode = str(n.attributes.get("auto_pad", "NOTSET"))
    if mode == "NOTSET":
        given["pads"] = list(n.attributes.get("pads", [0] * 2 * len(kernel)))
    else:
        given["auto_pad"] = mode
    return given


@form("MaxPool", says="ceil_mode and dilations are ignored, no Indices; padding is never chosen")
def max_pool(n: Node) -> None:
    n.floats()
    n.put("MaxPool", n.x(), **window(n))


@form("AveragePool", says="ceil_mode, dilations and count_include_pad are ignored; the divisor is what lies inside")
def average_pool(n: Node) -> None:
    n.floats()
    n.put("AveragePool", n.x(), **window(n))
