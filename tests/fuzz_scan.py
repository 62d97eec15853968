"""Damaged models through the scanner: small ONNX files of the onnx package with bytes changed, lost, doubled, swapped.

`python tests/fuzz_scan.py 300` looks for 300 seconds for a file that ends in anything but findings or one line, takes
longer than `SECONDS`, or kills the process; each is kept in a temporary folder and named. A number behind the seconds
is the first seed. What is tried is a function of the seed alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from scan_cases import CASES
from scan_corpus import on_disk

from converters.explain import explain
from converters.scan import scan
from converters.scan.report import text_of
from converters.surgery import info
from weights_bridge.errors import StageError

SECONDS = 20
LARGEST_BYTES = 20_000
NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFE, 0xFF)
VARINTS = (b"\x00", b"\x7f", b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\xff" * 10)
TEXTS = (b"", b"\n", b"\xff\xfe", b"Loop", b"If", b"Reshape", b"ai.onnx", b"x" * 300, b"../..", b"{}%s'\"")
Change = Callable[[random.Random, bytearray, bytes], None]


def seeds() -> list[bytes]:
    """Return the files that are damaged: small ones of the package, and one of each rule."""
    held = [path.read_bytes() for path in on_disk() if path.stat().st_size <= LARGEST_BYTES]
    return held + [case.graphs()[0].SerializeToString() for case in CASES]


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(rng: random.Random, data: bytearray, other: bytes) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray, other: bytes) -> None:
    if data:
        data[_place(rng, data)] = rng.choice(NUMBERS)


def _lose(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice((1, 2, 5, 40))]


def _double(rng: random.Random, data: bytearray, other: bytes) -> None:
    at, count = _place(rng, data), rng.choice((1, 3, 20, 200))
    data[at:at] = data[at : at + count]


def _insert(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = _place(rng, data)
    data[at:at] = rng.choice(VARINTS + TEXTS)


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    at, start = _place(rng, data), rng.randrange(len(other))
    data[at : at + rng.choice((0, 10, 100))] = other[start : start + rng.choice((10, 100, 1000))]


def _joined(rng: random.Random, data: bytearray, other: bytes) -> None:
    """Two messages one after the other are one message with their lists joined."""
    data += other


def _cut(rng: random.Random, data: bytearray, other: bytes) -> None:
    del data[_place(rng, data) :]


BYTES: tuple[Change, ...] = (_flip, _flip, _set, _set, _lose, _double, _insert, _splice, _joined, _cut)


def _names(graph: onnx.GraphProto) -> list[str]:
    made = [name for node in graph.node for name in (*node.input, *node.output)]
    return made + [value.name for value in (*graph.input, *graph.output, *graph.initializer)] + [""]


def rewired(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Return a file that is whole for protobuf and no sound graph: names, operators, types and sizes are changed."""
    model, donor = onnx.ModelProto.FromString(data), onnx.ModelProto.FromString(other)
    graph, names = model.graph, _names(model.graph)
    for _ in range(rng.randint(1, 5)):
        node = rng.choice(graph.node) if graph.node else graph.node.add()
        kind = rng.randrange(10)
        if kind == 0 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        elif kind == 1 and node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)
        elif kind == 2 and donor.graph.node:
            node.op_type = rng.choice(donor.graph.node).op_type
        elif kind == 3 and donor.graph.node:
            node.attribute.extend(rng.choice(donor.graph.node).attribute)
        elif kind == 4 and node.attribute:
            node.attribute[rng.randrange(len(node.attribute))].type = rng.randrange(15)  # pyright: ignore
        elif kind == 5 and graph.initializer:
            rng.choice(graph.initializer).data_type = rng.randrange(30)
        elif kind == 6 and graph.initializer:
            rng.choice(graph.initializer).dims.append(rng.choice((0, -1, 2**40, 3)))
        elif kind == 7 and graph.input:
            shape = rng.choice(graph.input).type.tensor_type.shape
            shape.dim.add(dim_value=rng.choice((0, -5, 2**62, 1)))
        elif kind == 8:
            model.opset_import.add(domain=rng.choice(("", "ai.onnx", "com.microsoft")), version=rng.choice((-1, 1, 99)))
        else:
            del node.input[rng.randrange(len(node.input) + 1) :]
    return model.SerializeToString()


def damaged(seed: int, files: list[bytes]) -> bytes:
    """Return the file of a seed."""
    rng = random.Random(seed)
    data, other = rng.choice(files), rng.choice(files)
    if rng.random() < 0.5:
        return rewired(rng, data, other)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        rng.choice(BYTES)(rng, changed, other)
    return bytes(changed)


def looked_at(path: Path) -> None:
    """Let everything that reads a file without its weights look at one; one line is an answer, too."""
    for version in ("2.6", "2.4"):
        with contextlib.suppress(StageError):
            text_of(scan(path, version, notes=True), path, version)
    with contextlib.suppress(StageError):
        str(explain(path))
    with contextlib.suppress(StageError):
        info.text_of(info.info(path))


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise a TimeoutError after some seconds; code in C is told when it comes back."""

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main(seconds: float, seed: int) -> int:
    """Look until the time is over; return how many faults were found."""
    files, end, faults, first = seeds(), time.monotonic() + seconds, 0, seed
    folder = Path(tempfile.mkdtemp(prefix="fuzz-scan-"))
    while time.monotonic() < end:
        path = folder / "m.onnx"
        path.write_bytes(damaged(seed, files))
        (folder / "seed").write_text(str(seed))  # what it was, where the process is killed
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True)  # code in C that does not come back
        try:
            with at_most(SECONDS):
                looked_at(path)
        except Exception:
            faults += 1
            path.rename(folder / f"{seed}.onnx")
            print(f"seed {seed}: {folder / f'{seed}.onnx'}\n{traceback.format_exc(limit=-3)}", flush=True)
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"{seed - first} files from {len(files)}, {faults} faults")
    return faults


if __name__ == "__main__":
    sys.exit(bool(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
