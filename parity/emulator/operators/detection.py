"""Boxes, regions and grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.emulator.graph import FLT_MAX
from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws
from weights_bridge.compare import Array

F = np.float32


@form(
    "NonMaxSuppression",
    says="score ≥ threshold is kept, IoU > threshold removes; max_output 0 or missing gives nothing, negative all",
)
def nms(n: Node) -> None:
    n.floats(0, 1)
    g, centred = n.graph, bool(n.attributes.get("center_point_box", 0))
    equal = g.name()

    def run(boxes: Array, scores: Array, most: Array | None, overlap: Array | None, least: Array | None) -> list[Array]:
        count, most_overlap = _number(most, 0), _number(overlap, 0.0)
        if not 0 <= most_overlap <= 1:
            raise Throws(f"NonMaxSuppression {n.label!r}: iou_threshold {most_overlap} must lie in 0…1")
        threshold = F(-FLT_MAX if least is None else _number(least, 0.0))
        found = [
            (batch, label, box)
            for batch in range(scores.shape[0])
            for label in range(scores.shape[1])
            for box in kept(corners(boxes[batch], centred), scores[batch, label], count, most_overlap, threshold)
        ]
        return [np.array(found, np.int32).reshape(-1, 3), np.array(least is not None and (scores == threshold).any())]

    inputs = [n.x(at) for at in range(5)]
    g.numpy(run, inputs, [n.y(), equal], ["int", "bool"])
    n.deviates_if(equal, "NMS.SCORE_EQ")


def _number(value: Array | None, default: float) -> float:
    return default if value is None or not value.size else value.reshape(-1)[0].item()


def corners(boxes: Array, centred: bool) -> Array:
    """Return boxes [n, 4] as y1, x1, y2, x2 with the smaller first; centred ones come as x, y, w, h."""
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    y1, x1, y2, x2 = boxes.T
    return np.stack([np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)], 1)


def kept(boxes: Array, scores: Array, most: float, overlap: float, threshold: np.float32) -> list[int]:
    """Return the boxes that stay, best first."""
    limit = len(scores) if most < 0 else int(most)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    chosen: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(chosen) >= limit or scores[box] < threshold:
            break
        if all(iou(boxes, areas, box, other) <= overlap for other in chosen):
            chosen.append(int(box))
    return chosen


def iou(boxes: Array, areas: Array, a: int, b: int) -> float:
    """Return the intersection over the union of two boxes."""
    low, high = np.maximum(boxes[a, :2], boxes[b, :2]), np.minimum(boxes[a, 2:], boxes[b, 2:])
    inside = float(np.prod(np.maximum(high - low, 0)))
    union = float(areas[a] + areas[b]) - inside
    return inside / union if union > 0 else 0.0


@form("RoiAlign", says="output_half_pixel below opset 16; a maximum starts at 0")
def roi_align(n: Node) -> None:
    n.floats(0, 1)
    g = n.graph
    mode = str(n.attributes.get("mode", "avg"))
    coordinates = "output_half_pixel"
    if n.opset >= 16:
        coordinates = str(n.attributes.get("coordinate_transformation_mode", "half_pixel"))
    names = {"output_height": 1, "output_width": 1, "sampling_ratio": 0}
    given: dict[str, Any] = {name: int(n.attributes.get(name, default)) for name, default in names.items()}
    given |= {"spatial_scale": float(n.attributes.get("spatial_scale", 1.0))}
    inputs = [n.x(), n.x(1), g.cast(n.x(2), "long")]
    found = g.op("RoiAlign", *inputs, mode=mode, coordinate_transformation_mode=coordinates, **given)
    if mode != "max":
        n.put("Identity", found)
        return
    n.put("Max", found, g.const(0.0))
    n.deviates_if(g.op("Less", found, g.const(0.0), kind="bool"), "ROIALIGN.MAX_NEG")


@form("GridSample", says="linear and nearest; cubic is computed as linear")
def grid_sample(n: Node) -> None:
    n.floats(0, 1)
    mode = {"nearest": "nearest"}.get(str(n.attributes.get("mode", "linear")), "linear")
    padding = str(n.attributes.get("padding_mode", "zeros"))
    n.same(mode=mode, padding_mode=padding, align_corners=int(n.attributes.get("align_corners", 0)))
    if mode == "nearest":
        n.rounding("which pixel is nearest in its own order of operations", "midway between two it may be the other")
