"""Sizes in a traced piece: constants where the exporter measures them at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.ir_values import constant


def shorten_expand_shapes(graph: Any) -> int:
    """Replace the computed shape of an Expand by constants: a 1 keeps a size, so nothing needs to be measured.

    Fires only where each output size is either the input's (same number or same symbol) or a number that
    broadcasts a 1. What it frees (Shape, Squeeze, Add, Concat) is removed as unused.
    """
    changed = 0
    for node in [node for node in graph if node.op_type == "Expand"]:
        source, target = node.inputs[0].shape, node.outputs[0].shape
        if source is None or target is None or len(source) != len(target):
            continue
        pairs = list(zip(source, target, strict=True))
        if all(_same_size(a, b) or (a == 1 and isinstance(b, int)) for a, b in pairs):
            sizes = [1 if _same_size(a, b) else b for a, b in pairs]
            node.replace_input_with(1, constant(graph, np.array(sizes, np.int64)))
            changed += 1
    return changed


def _same_size(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a.value is not None and a.value == b.value


def constant_reshape_shapes(graph: Any) -> int:
    """Replace the computed shape of a Reshape by constants: 0 keeps a size, -1 stands for the one that is not known.

    Fires only where at most one output size is neither a number nor the input's own at the same place.
    """
    changed = 0
    for node in [node for node in graph if node.op_type == "Reshape"]:
        source, target = node.inputs[0].shape, node.outputs[0].shape
        if node.inputs[1].const_value is not None or source is None or target is None or 0 in list(target):
            continue
        sizes = [_asked_size(source[at] if at < len(source) else None, size) for at, size in enumerate(target)]
        if sizes.count(-1) <= 1:
            node.replace_input_with(1, constant(graph, np.array(sizes, np.int64)))
            node.attributes.pop("allowzero", None)
            changed += 1
    return changed


def _asked_size(before: Any, after: Any) -> int:
    if isinstance(after, int):
        return after
    return 0 if before is not None and _same_size(before, after) else -1


def reshapes_without_allowzero(graph: Any) -> None:
    """Drop `allowzero` where the constant shape has no zero: it changes nothing there."""
    for node in graph:
        shape = node.inputs[1].const_value if node.op_type == "Reshape" else None
        if shape is not None and 0 not in shape.numpy():
            node.attributes.pop("allowzero", None)
