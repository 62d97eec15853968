"""Writing safetensors tensor by tensor, so that memory holds one tensor and not the model.

Format (safetensors README): 8 bytes little-endian header length, JSON header, then the tensors' bytes back to back.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from weights_bridge.compare import Array

ITEM_BYTES = 4


def write_safetensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Iterable[tuple[str, Array]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write fp32 tensors whose names and shapes are known beforehand.

    The libraries' own writers report a full disk as `SafetensorError` or `RuntimeError`; this one leaves it an
    `OSError`, which `written_whole` turns into the user's one line.

    Args:
        path: the file.
        shapes: name to shape, in the order in which `tensors` yields them.
        tensors: (name, array) pairs.
        metadata: texts for the header, beside `format`.

    Raises:
        OSError: the system refused the write.
        ValueError: order, name or shape differ from `shapes` (a bug of the caller).
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"} | dict(metadata or {})}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * ITEM_BYTES
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    names = iter(shapes)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, array in tensors:
            if name != next(names, None) or array.shape != shapes[name]:
                raise ValueError(f"{name} {array.shape} is out of place")
            file.write(np.ascontiguousarray(array, "<f4").data)
    if (missing := next(names, None)) is not None:
        raise ValueError(f"{missing} was not written")
