"""External tensors into the file.

Why: Sentis ignores `offset` and reads a side file front to back, so that most layouts give wrong weights without
a message (scanner: EXTERNAL.*). Does not fire on a side file that lies outside the model's folder, is missing or
too short, nor where the result would pass 2 GiB: then nothing at all is inlined, for half an answer helps nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from converters.onnx_file import LIMIT_BYTES, byte_size
from converters.passes.base import Outcome, Pass

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, folder: Path) -> Outcome:
    """Read every external tensor, by its own offset, into raw data."""
    tensors = [tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL]
    left = {tensor.name: why for tensor in tensors if (why := _refusal(tensor, folder))}
    total = sum(byte_size(tensor) for tensor in tensors)
    if not left and total + model.ByteSize() > LIMIT_BYTES:
        left = {"all": f"{total / 2**30:.2f} GiB inline would pass the 2 GiB of one file"}
    if left:
        return Outcome(0, left)
    for tensor in tensors:
        offset, size = _number(tensor, "offset"), byte_size(tensor)
        with (folder / _text(tensor, "location")).open("rb") as file:
            file.seek(offset)
            tensor.raw_data = file.read(size)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return Outcome(len(tensors))


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield initialisers and tensors in node attributes, subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors_of(attribute.g)
            for inner in attribute.graphs:
                yield from tensors_of(inner)


def _refusal(tensor: onnx.TensorProto, folder: Path) -> str:
    location = _text(tensor, "location")
    if byte_size(tensor) < 0:
        return "its type or dims are no tensor's"
    side = (folder / location.replace("\0", "?")).resolve()
    if not location or not side.is_relative_to(folder.resolve()):
        return f"its file {location!r} lies outside the model's folder"
    if not side.is_file():
        return f"its file {location!r} is not there"
    length, size = _number(tensor, "length", byte_size(tensor)), byte_size(tensor)
    if length != size:
        return f"its length is {length}, its shape wants {size} bytes"
    offset = _number(tensor, "offset")
    if offset < 0 or offset + size > side.stat().st_size:
        return f"{location} ends before byte {offset + size}"
    return ""


def _text(tensor: onnx.TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def _number(tensor: onnx.TensorProto, key: str, default: int = 0) -> int:
    text = _text(tensor, key)
    return int(text) if text.lstrip("-").isdigit() else (default if not text else -1)


PASS = Pass(
    "inline_weights",
    "Sentis ignores the offset of external tensors and reads their file front to back",
    ("EXTERNAL.OFFSET", "EXTERNAL.DATA", "CONSTANT.EXTERNAL", "CONSTANTOFSHAPE.EXTERNAL", "EXTERNAL.LENGTH"),
    run,
)
