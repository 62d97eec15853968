"""Findings about weights in side files: the importer's reading is replayed, without reading a byte of them.

Sentis opens one stream per file and gives each external initialiser, in the graph's order, the next `length` bytes;
`offset` is never used (2.3 to 2.6, read in source). A constant of a node is read from byte 0 (rules of its operator).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

from converters.facts import Facts
from converters.finding import Finding
from converters.onnx_file import byte_size
from converters.scan.graphs import nodes_within
from converters.scan.operators import SHOWN_NAME, label_of

if TYPE_CHECKING:
    import onnx

LONGEST_NUMBER = 30  # digits of an offset; a damaged file may hold megabytes of them


@dataclass(frozen=True)
class Entry:
    """Where a tensor says that its data is.

    Attributes:
        location: path from the model's folder.
        offset: first byte, 0 when absent, -1 when it is no place in a file.
        length: bytes, -1 when absent or no number of bytes.
        said: offset and length as the file has them, for messages.
    """

    location: str
    offset: int
    length: int
    said: tuple[str, str] = ("0", "absent")


def entry_of(tensor: onnx.TensorProto) -> Entry:
    """Return a tensor's external entry."""
    texts = {entry.key: entry.value for entry in tensor.external_data}
    offset, length = texts.get("offset") or "0", texts.get("length") or ""
    said = (_said(offset), _said(length) if length else "absent")
    return Entry(texts.get("location", ""), _number(offset), _number(length), said)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else -1


def _said(text: str) -> str:
    """Return a number as it is written, anything else as a short text in quotes."""
    written = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= LONGEST_NUMBER
    return text if written else repr(text[:LONGEST_NUMBER])


def external_findings(graph: onnx.GraphProto, path: Path, known: Facts) -> Iterator[Finding]:
    """Yield the findings about external tensors of a graph in a file."""
    positions: dict[str, int] = {}  # side file to the byte that Sentis reads next
    ends: dict[str, int] = {}  # side file to the last byte that the model names
    told: set[str] = set()
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield from _initialiser(tensor, path, positions, ends, told, known)
    for node in nodes_within(graph):
        for attribute in node.attribute:
            tensor = attribute.t
            if attribute.HasField("t") and tensor.data_location == tensor.EXTERNAL:
                entry, wanted = entry_of(tensor), byte_size(tensor)
                ends[entry.location] = max(ends.get(entry.location, 0), max(entry.offset, 0) + max(wanted, 0))
                yield from _file(label_of(node), entry, wanted, path, known)
    for location, end in ends.items():
        side = side_file(path, location)
        if side is not None and (size := bytes_of(side)) > end:
            yield known.finding("EXTERNAL.UNUSED", location[:SHOWN_NAME], f"{size} bytes, named are {end}")


def side_file(path: Path, location: str) -> Path | None:
    """Return a side file's path, None where it lies outside the folder of the model.

    A model and its side file that are both links into one other folder (a cache of blobs) lie beside each other.
    """
    absolute = Path(location).is_absolute() or bool(PureWindowsPath(location).drive) or location.startswith("\\")
    if not location or "\0" in location or absolute or ".." in PureWindowsPath(location).parts:
        return None
    side = path.parent / location
    try:
        found = side.resolve()
        homes = (path.parent.resolve(), path.resolve().parent)
    except (OSError, RuntimeError):  # a loop of links
        return None
    return side if any(found.is_relative_to(home) for home in homes) else None


def _initialiser(
    tensor: onnx.TensorProto,
    path: Path,
    positions: dict[str, int],
    ends: dict[str, int],
    told: set[str],
    known: Facts,
) -> Iterator[Finding]:
    label, entry, wanted = tensor.name[:SHOWN_NAME], entry_of(tensor), byte_size(tensor)
    if wanted < 0:
        return  # TENSOR.TYPE says why
    at = positions.get(entry.location, 0)
    positions[entry.location] = at + max(entry.length, 0)
    ends[entry.location] = max(ends.get(entry.location, 0), max(entry.offset, 0) + wanted)
    usable = True
    for finding in _file(label, entry, wanted, path, known):
        usable = usable and finding.id not in ("EXTERNAL.PATH", "EXTERNAL.MISSING")
        yield finding
    if not usable:
        return
    if entry.offset != at:
        evidence = f"offset {entry.said[0]} in {entry.location!r}, Sentis reads from {at}"
        yield known.finding("EXTERNAL.OFFSET", label, evidence)
    elif entry.location not in told:
        told.add(entry.location)
        yield known.finding("EXTERNAL.DATA", label, f"weights in {entry.location!r}")


def _file(label: str, entry: Entry, wanted: int, path: Path, known: Facts) -> Iterator[Finding]:
    """Yield what is wrong with a side file for one tensor."""
    shown = repr(entry.location[:SHOWN_NAME])
    side = side_file(path, entry.location)
    if side is None:
        yield known.finding("EXTERNAL.PATH", label, shown)
        return
    size = bytes_of(side)
    if size < 0:
        yield known.finding("EXTERNAL.MISSING", label, shown)
        return
    if entry.length != wanted:
        yield known.finding("EXTERNAL.LENGTH", label, f"length {entry.said[1]}, its shape wants {wanted} bytes")
    if max(entry.offset, 0) + wanted > size:
        yield known.finding("EXTERNAL.SHORT", label, f"{shown} ends before byte {max(entry.offset, 0) + wanted}")


def bytes_of(side: Path) -> int:
    """Return a file's bytes, -1 where there is none."""
    try:
        return side.stat().st_size if side.is_file() else -1
    except OSError:  # a name longer than the system allows
        return -1
