"""Damaged and hostile model files through every command that reads one: a line, no traceback, nothing else touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import Result
from helpers import call
from onnx import TensorProto, helper
from scan_cases import graph as parsed

from converters.onnx_file import field_prefix

COMMANDS = {
    "scan": ["scan"],
    "fix": ["fix", "--out"],
    "explain": ["explain"],
    "info": ["graph", "info"],
    "extract": ["graph", "extract", "--to", "y", "--out"],
    "cut": ["graph", "cut", "--at", "y", "--out"],
    "fix-shape": ["graph", "fix-shape", "--input", "x=2,8", "--out"],
    "rename-io": ["graph", "rename-io", "--name", "x=z", "--out"],
    "inline": ["graph", "inline", "--out"],
    "inject-kv": ["graph", "inject-kv", "--out"],
    "hoist-state": ["graph", "hoist-state", "--time", "frames", "--out"],
}
ROWS = "float[2,8]"
Make = Callable[[Path], None]
MADE: dict[str, Make] = {}


def graph(body: str, inputs: str = f"{ROWS} x", output: str = f"{ROWS} y") -> onnx.ModelProto:
    return parsed(body, inputs, output=output)


def bad(make: Make) -> Make:
    MADE[make.__name__] = make
    return make


def weighted(location: str, **entries: str) -> bytes:
    """Return a model that reads a weight of 8 floats from a side file."""
    model = graph("y = Add(x, w)")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location, "offset": "0", "length": "32"} | entries).items():
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    return model.SerializeToString()


@bad
def random_bytes(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(3000))


@bad
def empty(path: Path) -> None:
    path.touch()


@bad
def truncated(path: Path) -> None:
    data = graph("a = Relu(x) y = Sigmoid(a)").SerializeToString()
    path.write_bytes(data[: len(data) // 2])


@bad
def pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


@bad
def directory(path: Path) -> None:
    path.mkdir()


@bad
def missing(path: Path) -> None:
    pass


@bad
def cyclic(path: Path) -> None:
    path.write_bytes(graph("a = Add(x, b) b = Relu(a) y = Neg(b)").SerializeToString())


@bad
def duplicates(path: Path) -> None:
    path.write_bytes(graph("a = Relu(x) a = Neg(x) y = Abs(a)").SerializeToString())


@bad
def an_opset_of_any_number(path: Path) -> None:
    model = graph("y = Relu(x)")
    model.opset_import[0].version = 2**40
    path.write_bytes(model.SerializeToString())


@bad
def a_node_without_its_weights(path: Path) -> None:
    path.write_bytes(graph("y = Conv(x)").SerializeToString())


@bad
def a_weight_without_its_data(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    path.write_bytes(model.SerializeToString())


@bad
def a_negative_size(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[-5])
    path.write_bytes(model.SerializeToString())


@bad
def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@bad
def undefined(path: Path) -> None:
    path.write_bytes(graph("y = Add(x, nowhere)").SerializeToString())


@bad
def side_file_above(path: Path) -> None:
    path.write_bytes(weighted("../secret.bin"))


@bad
def side_file_absolute(path: Path) -> None:
    path.write_bytes(weighted(str(path.parent.parent / "secret.bin")))


@bad
def side_file_linked(path: Path) -> None:
    (path.parent / "w.bin").symlink_to(path.parent.parent / "secret.bin")
    path.write_bytes(weighted("w.bin"))


@bad
def side_file_of_a_device(path: Path) -> None:
    path.write_bytes(weighted("/dev/zero"))


@bad
def side_file_missing(path: Path) -> None:
    path.write_bytes(weighted("gone.bin"))


@bad
def side_file_without_numbers(path: Path) -> None:
    (path.parent / "w.bin").write_bytes(bytes(32))
    path.write_bytes(weighted("w.bin", offset="-8", length="many"))


@bad
def enormous_dims(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[2**62, 2**62], raw_data=b"1234"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62
    path.write_bytes(model.SerializeToString())


@bad
def awkward_names(path: Path) -> None:
    model = graph("a = Sum(x) y = Neg(a)")
    for node, name in zip(model.graph.node, ('a"{b}\n%s', "\x1b[31m../../etc"), strict=True):
        node.name = name
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "in'ner\n{0}\\"
    path.write_bytes(model.SerializeToString())


@bad
def awkward_inputs(path: Path) -> None:
    model = graph("y = Sum(x)")
    model.graph.input[0].name = model.graph.node[0].input[0] = "../x\n{}"
    path.write_bytes(model.SerializeToString())


@bad
def an_operator_of_texts(path: Path) -> None:
    path.write_bytes(graph("y = StringNormalizer(x)", "string[2] x", output="string[2] y").SerializeToString())


@bad
def no_opset(path: Path) -> None:
    model = graph("y = Relu(x)")
    del model.opset_import[:]
    path.write_bytes(model.SerializeToString())


@bad
def a_body_that_is_missing(path: Path) -> None:
    path.write_bytes(helper.make_model(graph("y = If(x)", "bool x").graph).SerializeToString())


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Return every file's bytes, and where links lead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file() and path.stat().st_size < 1 << 20:
            found[str(path)] = path.read_bytes()
    return found


def checked(command: str, model: Path, out: Path) -> Result:
    """Call a command and check that it ends as one may."""
    words = [*COMMANDS[command]]
    words = [words[0], str(model), *words[1:]] if words[0] != "graph" else [*words[:2], str(model), *words[2:]]
    answer = call(*words, *([out / "out.onnx"] if "--out" in words else []))
    shown = answer.output
    assert answer.exception is None or isinstance(answer.exception, SystemExit), (command, answer.exception)
    assert answer.exit_code in (0, 1, 3), shown
    assert "Traceback" not in shown and "\x1b[31m" not in shown
    if answer.exit_code == 1:
        lines = answer.stderr.strip().split("\n")
        assert lines[0].startswith("error: ") and all(line.startswith("  ") for line in lines[1:]), lines
        assert len(lines) <= 3, lines
    if answer.exit_code and "--out" in words:
        assert list(out.iterdir()) == [], command
    return answer


@pytest.mark.parametrize("name", list(MADE))
def test_every_command_tells_it_in_a_line_and_touches_nothing_else(tmp_path, name):
    (tmp_path / "secret.bin").write_bytes(np.full(8, 7, np.float32).tobytes())
    folder = tmp_path / "models"
    folder.mkdir()
    MADE[name](folder / "m.onnx")
    before = snapshot(tmp_path)
    for command in COMMANDS:
        out = tmp_path / f"out-{command}"
        out.mkdir()
        answer = checked(command, folder / "m.onnx", out)
        assert b"\x00\x00\xe0\x40" * 8 not in b"".join(path.read_bytes() for path in out.iterdir())  # the secret
        kept = {path: held for path, held in snapshot(tmp_path).items() if not path.startswith(str(tmp_path / "out-"))}
        assert kept == before, (command, answer.output)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_constant_of_2_gb_is_a_line(tmp_path, command):
    """The file is sparse: only its head is on the disk."""
    size = 2**31
    raw = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**29]).SerializeToString() + field_prefix(9, size)
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString()
    attribute += field_prefix(5, len(raw) + size) + raw
    node = onnx.NodeProto(op_type="Constant", output=["y"]).SerializeToString()
    node += field_prefix(5, len(attribute) + size) + attribute
    inside = field_prefix(1, len(node) + size) + node
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)]).SerializeToString()
    path, out = tmp_path / "m.onnx", tmp_path / "out"
    out.mkdir()
    with path.open("wb") as file:
        file.write(head + field_prefix(7, len(inside) + size) + inside)
        file.truncate(file.tell() + size)
    answer = checked(command, path, out)
    assert answer.exit_code == 3 if command == "scan" else answer.exit_code in (0, 1, 3)
