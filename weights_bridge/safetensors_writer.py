"""Writing safetensors tensor by tensor, so that memory holds one tensor and not the model.

Format (safetensors README): 8 bytes little-endian header length, JSON header, then the tensors' bytes back to back.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.files import write_json
from weights_bridge.safetensors_reader import DTYPES, NAME_OF_DTYPE

FLOAT32 = DTYPES["F32"]
SHARD_BYTES = 5_000_000_000  # transformers' own size of a shard
Shapes = Mapping[str, tuple[int, ...]]
Dtypes = Mapping[str, "np.dtype[Any]"]


def write_safetensors(
    path: Path,
    shapes: Shapes,
    tensors: Iterable[tuple[str, Array]],
    metadata: Mapping[str, str] | None = None,
    dtypes: Dtypes | None = None,
) -> None:
    """Write tensors whose names, shapes and types are known beforehand.

    The libraries' own writers report a full disk as `SafetensorError` or `RuntimeError`; this one leaves it an
    `OSError`, which `written_whole` turns into the user's one line.

    Args:
        path: the file.
        shapes: name to shape, in the order in which `tensors` yields them.
        tensors: (name, array) pairs.
        metadata: texts for the header, beside `format`.
        dtypes: name to type where it is not fp32; arrays must be of that type already, fp32 ones are cast to fp32.

    Raises:
        OSError: the system refused the write.
        ValueError: order, name, shape or type differ from what was announced (a bug of the caller).
    """
    types = {name: (dtypes or {}).get(name, FLOAT32) for name in shapes}
    header: dict[str, object] = {"__metadata__": {"format": "pt"} | dict(metadata or {})}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * types[name].itemsize
        header[name] = {"dtype": NAME_OF_DTYPE[types[name]], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    names = iter(shapes)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, array in tensors:
            if name != next(names, None) or array.shape != shapes[name]:
                raise ValueError(f"{name} {array.shape} is out of place")
            if types[name] != FLOAT32 and array.dtype != types[name]:
                raise ValueError(f"{name} is {array.dtype}, {types[name]} was announced")
            file.write(np.ascontiguousarray(array, types[name]).reshape(-1).view(np.uint8).data)
    if (missing := next(names, None)) is not None:
        raise ValueError(f"{missing} was not written")


def write_model(
    folder: Path,
    shapes: Shapes,
    tensors: Iterable[tuple[str, Array]],
    dtypes: Dtypes | None = None,
    shard_bytes: int = SHARD_BYTES,
    metadata: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a model's tensors as `model.safetensors`, or as shards with their index where one file would be too large.

    Args:
        folder: an empty directory.
        shapes: name to shape, in the order in which `tensors` yields them.
        tensors: (name, array) pairs.
        dtypes: name to type where it is not fp32.
        shard_bytes: the most a shard holds, in bytes; a larger tensor is a shard of its own.
        metadata: texts for each file's header.

    Returns:
        The names of the files.
    """
    parts = _shards(shapes, dtypes or {}, shard_bytes)
    source = iter(tensors)
    if len(parts) == 1:
        write_safetensors(folder / "model.safetensors", shapes, source, metadata, dtypes)
        return ["model.safetensors"]
    where: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        write_safetensors(folder / file, part, _next(source, len(part)), metadata, dtypes)
        where |= dict.fromkeys(part, file)
    total = sum(_bytes_of(name, shape, dtypes or {}) for name, shape in shapes.items())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    return sorted(set(where.values()))


def _shards(shapes: Shapes, dtypes: Dtypes, shard_bytes: int) -> list[dict[str, tuple[int, ...]]]:
    parts: list[dict[str, tuple[int, ...]]] = [{}]
    held = 0
    for name, shape in shapes.items():
        size = _bytes_of(name, shape, dtypes)
        if held + size > shard_bytes and parts[-1]:
            parts.append({})
            held = 0
        parts[-1][name] = shape
        held += size
    return parts


def _bytes_of(name: str, shape: tuple[int, ...], dtypes: Dtypes) -> int:
    return math.prod(shape) * dtypes.get(name, FLOAT32).itemsize


def _next(source: Iterator[tuple[str, Array]], count: int) -> Iterator[tuple[str, Array]]:
    """Yield the next so many; `itertools.islice` would keep the last one alive while the next is made."""
    for _ in range(count):
        yield next(source)
