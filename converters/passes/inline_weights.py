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
from converters.passes.base import Context, Outcome, Pass

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Read every external tensor, by its own offset, into raw data."""
    folder = context.folder
    tensors = [tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL]
    left = {tensor.name: why for tensor in tensors if (why := refusal(tensor, folder))}
    if not left and too_large(model, tensors):
        total = sum(byte_size(tensor) for tensor in tensors)
        left = {"all": f"{total / 2**30:.2f} GiB inline would pass the 2 GiB of one file; see resequence_weights"}
    if left:
        return Outcome(0, left)
    for tensor in tensors:
        offset, size = number_of(tensor, "offset"), byte_size(tensor)
        with (folder / text_of(tensor, "location")).open("rb") as file:
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


def too_large(model: onnx.ModelProto, tensors: list[onnx.TensorProto]) -> bool:
    """Tell whether external tensors inside the file would pass protobuf's limit."""
    return sum(byte_size(tensor) for tensor in tensors) + model.ByteSize() > LIMIT_BYTES


def refusal(tensor: onnx.TensorProto, folder: Path) -> str:
    """Return why a tensor's data cannot be read, empty where it can."""
    location = text_of(tensor, "location")
    if byte_size(tensor) < 0:
        return "its type or dims are no tensor's"
    side = (folder / location.replace("\0", "?")).resolve()
    if not location or not side.is_relative_to(folder.resolve()):
        return f"its file {location!r} lies outside the model's folder"
    if not side.is_file():
        return f"its file {location!r} is not there"
    length, size = number_of(tensor, "length", byte_size(tensor)), byte_size(tensor)
    if length != size:
        return f"its length is {length}, its shape wants {size} bytes"
    offset = number_of(tensor, "offset")
    if offset < 0 or offset + size > side.stat().st_size:
        return f"{location} ends before byte {offset + size}"
    return ""


def text_of(tensor: onnx.TensorProto, key: str) -> str:
    """Return an external entry's text, empty where it is not given."""
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def number_of(tensor: onnx.TensorProto, key: str, default: int = 0) -> int:
    """Return an external entry's number, -1 where it is none."""
    text = text_of(tensor, key)
    return int(text) if text.lstrip("-").isdigit() else (default if not text else -1)


NAMES = ("OFFSET", "DATA", "LENGTH", "UNUSED")
PASS = Pass(
    "inline_weights",
    "Sentis ignores the offset of external tensors and reads their file front to back",
    ("CONSTANT.EXTERNAL", "CONSTANTOFSHAPE.EXTERNAL", *(f"EXTERNAL.{name}" for name in NAMES)),
    run,
)
