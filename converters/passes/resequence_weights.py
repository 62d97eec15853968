"""External tensors in a new side file, in the order in which Sentis reads it.

Why: Sentis ignores `offset` and reads a side file front to back. Where weights do not fit into the file itself (see
`inline_weights`), they are written anew: each initialiser right behind the one before, offsets the running sum of
lengths. That Sentis reads such a file rightly follows from its source; nobody has run it. Does not fire where weights
can be inlined, where one is missing, where a tensor of a node is external, and never writes over a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from converters.onnx_file import byte_size
from converters.passes.base import Context, Outcome, Pass
from converters.passes.inline_weights import refusal, tensors_of, too_large
from converters.scan.external import entry_of

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Write the side file beside the output, once."""
    outside = [tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL]
    if not outside or not too_large(model, outside) or context.side is None:
        return Outcome()
    if all(entry_of(tensor).location == context.side.name for tensor in outside):
        return Outcome()  # a second run
    left = {tensor.name: why for tensor in outside if (why := refusal(tensor, context))}
    held = [tensor for tensor in model.graph.initializer if tensor.data_location == tensor.EXTERNAL]
    if not left and len(held) < len(outside):
        left = {"nodes": "a tensor of a node is external, and Sentis reads its file from the start"}
    if not left and context.side.exists():
        left = {context.side.name: "the file is there already"}
    if left:
        return Outcome(0, left)
    with context.side.open("xb") as target:
        for tensor in held:
            at, size, entry = target.tell(), byte_size(tensor), entry_of(tensor)
            with (context.folder / entry.location).open("rb") as source:
                source.seek(entry.offset)
                _copy(source, target, size)
            del tensor.external_data[:]
            for key, value in (("location", context.side.name), ("offset", at), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
    return Outcome(len(held))


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    block = 1 << 24
    for start in range(0, size, block):
        target.write(source.read(min(block, size - start)))


PASS = Pass(
    "resequence_weights", "Sentis reads a side file front to back, whatever the offsets say",
    ("EXTERNAL.OFFSET", "EXTERNAL.LENGTH"), run,
)  # fmt: skip
