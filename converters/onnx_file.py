"""Reading an ONNX file without its weights, through a memory map, and saying what is wrong with one that is none."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.wire import Reader, WireError
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

LIMIT_BYTES = 2**31 - 1  # a protobuf message's own limit; Sentis' importer has it too


@dataclass(frozen=True)
class Skeleton:
    """An ONNX file without the data of its large tensors.

    Attributes:
        model: the model; a large tensor has name, dims and type only.
        data_fields: initialiser name to data field number to the bytes it takes in the file.
        node_data: first output of a node to the same for each of its large tensors, in the file's order; nodes of the
            graph and of bodies in it (where two bodies may use one name), not those of functions.
        file_bytes: size of the file.
        data_at: name of an initialiser, or first output of a node, of the graph itself to the byte in the file where
            the data of its large tensor begins, where that is one piece of little-endian numbers.
    """

    model: onnx.ModelProto
    data_fields: dict[str, dict[int, int]]
    node_data: dict[str, list[dict[int, int]]]
    file_bytes: int
    data_at: dict[str, int] = field(default_factory=dict)


def read_skeleton(path: Path) -> Skeleton:
    """Read everything but the data of large tensors.

    Raises:
        StageError: missing, empty, a Git LFS pointer, a web page, cut short, or not an ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    size = _checked_size(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = Reader(data)
            light = reader.light("model", 0, len(data))
        model = onnx.ModelProto.FromString(light)
    except (DecodeError, WireError) as error:
        hint = "the file is cut short or no ONNX model; fetch or write it again and compare the size"
        raise StageError(f"{path}: not readable as ONNX ({size} bytes): {error}", hint=hint) from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise StageError(f"{path}: no graph in it ({size} bytes)", hint="give an .onnx model file")
    if (text := _not_utf8(model)) is not None:
        raise StageError(f"{path}: a name that is not UTF-8: {text!r}", hint="fetch or write the file again")
    return Skeleton(model, reader.data_fields, reader.node_data, size, reader.data_at)


def loaded(path: Path) -> onnx.ModelProto:
    """Read a model with the data that is in its file; side files are left where they are.

    Raises:
        StageError: no model, see `read_skeleton`, or one that protobuf cannot read whole or whose inference never ends.
    """
    import onnx

    skeleton = read_skeleton(path)  # says what is wrong with a file that is no model
    require_end(path, skeleton.model)
    if skeleton.file_bytes > LIMIT_BYTES:
        size = f"{skeleton.file_bytes / 2**30:.2f} GiB"
        hint = "export it with side files or in fp16; `mlx-sentis scan` reads it all the same"
        raise StageError(f"{path}: {size}, protobuf reads a file of less than 2 GiB only", hint=hint)
    return onnx.load(str(path), load_external_data=False)


def is_endless(node: onnx.NodeProto) -> bool:
    """Tell whether onnx and ONNX Runtime would look at a node for ever: Einsum with a lone dot."""
    texts = [one.s.decode("utf-8", "replace") for one in node.attribute if one.name == "equation"]
    terms = [term for text in texts for term in text.replace("->", ",").replace(" ", "").split(",")]
    return node.op_type == "Einsum" and any("." in term.replace("...", "", 1) for term in terms)


def require_end(path: Path, model: onnx.ModelProto) -> None:
    """Require that whatever reads a model comes to an end.

    Raises:
        StageError: the node that it would not pass.
    """
    from converters.scan.graphs import nodes_within

    for graph in (model.graph, *model.functions):
        for node in nodes_within(graph):
            if is_endless(node):
                where = node.name or next(iter(node.output), "")
                message = f"{path}: Einsum {where!r}: its equation has dots that are no ellipsis"
                raise StageError(message, hint="no reader of ONNX comes to an end with it; write the equation again")


def _not_utf8(message: Any) -> bytes | None:
    """Return a text of a message that protobuf could not decode (it then hands out bytes), None for none."""
    for described, value in message.ListFields():
        if described.type not in (described.TYPE_STRING, described.TYPE_MESSAGE):
            continue
        values = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        for item in values:
            if described.type == described.TYPE_MESSAGE:
                if (found := _not_utf8(item)) is not None:
                    return found
            elif isinstance(item, bytes):
                return item[:40]
    return None


def _checked_size(path: Path) -> int:
    """Return the bytes of a file that may be a model.

    Raises:
        StageError: missing, empty, a pipe or device, a Git LFS pointer, a web page.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for, without end
            raise StageError(f"{path}: a pipe or device, wanted an .onnx file", hint="give an existing .onnx file")
        with path.open("rb") as file:
            start = file.read(512)
            size = path.stat().st_size
    except IsADirectoryError:
        raise StageError(f"{path}: a directory, wanted an .onnx file") from None
    except OSError as error:
        raise StageError(f"{path}: {error.strerror or error}", hint="give an existing .onnx file") from None
    if not size:
        raise StageError(f"{path}: the file is empty", hint="fetch or write it again")
    if start.startswith(b"version https://git-lfs"):
        raise StageError(f"{path}: a Git LFS pointer, not the model ({size} bytes)", hint="run `git lfs pull`")
    if start.lstrip()[:1] == b"<":
        raise StageError(f"{path}: a web page, not a model ({size} bytes)", hint="download the file itself")
    return size


def byte_size(tensor: onnx.TensorProto) -> int:
    """Return how many bytes a tensor's raw data has; -1 where its type or dims are no tensor's."""
    import onnx

    count = 1
    for size in tensor.dims:
        count *= size
    try:
        item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, ValueError):
        return -1
    return -1 if min([0, *tensor.dims]) < 0 else count * item


def type_name(data_type: int) -> str:
    """Return the name of an element type, also of one that ONNX does not know."""
    import onnx

    try:
        return onnx.TensorProto.DataType.Name(data_type)  # pyright: ignore[reportArgumentType]
    except ValueError:
        return f"number {data_type} (unknown)"


def topology_sha256(model: onnx.ModelProto) -> str:
    """Return a hash of the graph with initialiser data left out; names, dims and types of initialisers count."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = light.graph
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    return hashlib.sha256(light.SerializeToString(deterministic=True)).hexdigest()
