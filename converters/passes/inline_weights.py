"""External tensors into the file.

Why: Sentis ignores `offset` and reads a side file front to back, so that most layouts give wrong weights without
a message (scanner: EXTERNAL.*). Does not fire on a side file that lies outside the model's folder, is missing or
too short, nor where the result would pass 2 GiB: then nothing at all is inlined, for half an answer helps nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from converters.onnx_file import LIMIT_BYTES, byte_size
from converters.passes.base import Context, Outcome, Pass
from converters.scan.external import bytes_of, entry_of, side_file

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Read every external tensor, by its own offset, into raw data."""
    tensors = [tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL]
    left = {tensor.name: why for tensor in tensors if (why := refusal(tensor, context))}
    if not left and too_large(model, tensors):
        total = sum(byte_size(tensor) for tensor in tensors)
        left = {"all": f"{total / 2**30:.2f} GiB inline would pass the 2 GiB of one file; see resequence_weights"}
    if left:
        return Outcome(0, left)
    for tensor in tensors:
        entry = entry_of(tensor)
        with (context.folder / entry.location).open("rb") as file:
            file.seek(entry.offset)
            tensor.raw_data = file.read(byte_size(tensor))
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


def refusal(tensor: onnx.TensorProto, context: Context) -> str:
    """Return why a tensor's data cannot be read, empty where it can."""
    entry, size = entry_of(tensor), byte_size(tensor)
    if size < 0:
        return "its type or dims are no tensor's"
    side = side_file(context.file, entry.location)
    if side is None:
        return f"its file {entry.location!r} lies outside the model's folder"
    if (held := bytes_of(side)) < 0:
        return f"its file {entry.location!r} is not there"
    if entry.length != size and entry.said[1] != "absent":
        return f"its length is {entry.said[1]}, its shape wants {size} bytes"
    if entry.offset < 0:
        return f"its offset is {entry.said[0]}, wanted a place in {entry.location!r}"
    if (end := entry.offset + size) > held:
        return f"{entry.location} ends before byte {end}"
    return ""


NAMES = ("OFFSET", "DATA", "LENGTH", "UNUSED")
PASS = Pass(
    "inline_weights",
    "Sentis ignores the offset of external tensors and reads their file front to back",
    ("CONSTANT.EXTERNAL", "CONSTANTOFSHAPE.EXTERNAL", *(f"EXTERNAL.{name}" for name in NAMES)),
    run,
)
