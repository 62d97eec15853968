"""Damaged and hostile model files, by name: what each command does with them stands in converters/test_bad_files.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from scan_cases import graph as parsed

from converters.wire import field_prefix

ROWS = "float[2,8]"
SECRET = np.full(8, 7, np.float32).tobytes()  # beside the folder of the models, as secret.bin
Make = Callable[[Path], None]
MADE: dict[str, Make] = {}
NO_MODEL: list[str] = []  # every command ends with exit code 1


def graph(body: str, inputs: str = f"{ROWS} x", output: str = f"{ROWS} y") -> onnx.ModelProto:
    return parsed(body, inputs, output=output)


def bad(make: Make) -> Make:
    MADE[make.__name__] = make
    return make


def no_model(make: Make) -> Make:
    NO_MODEL.append(make.__name__)
    return bad(make)


def write(path: Path, model: onnx.ModelProto) -> None:
    path.write_bytes(model.SerializeToString())


def weighted(location: str, **entries: str) -> bytes:
    """Return a model that reads a weight of 8 floats from a side file."""
    model = graph("y = Add(x, w)")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": location, "offset": "0", "length": "32"} | entries).items():
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    return model.SerializeToString()


@no_model
def a_web_page(path: Path) -> None:
    path.write_text("\n<!doctype html><html><body>404</body></html>\n")


@no_model
def a_pipe(path: Path) -> None:
    os.mkfifo(path)


@no_model
def a_text(path: Path) -> None:
    path.write_text("model: here\n")


@no_model
def cut_inside_its_weights(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 4096), np.float32), "w"))
    path.write_bytes(model.SerializeToString()[:-9000])


@no_model
def bodies_without_end(path: Path) -> None:
    message = b""
    for _ in range(200):
        attribute = field_prefix(6, len(message)) + message
        node = field_prefix(5, len(attribute)) + attribute
        message = field_prefix(1, len(node)) + node
    path.write_bytes(field_prefix(7, len(message)) + message)


@no_model
def random_bytes(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(3000))


@no_model
def empty(path: Path) -> None:
    path.touch()


@no_model
def truncated(path: Path) -> None:
    data = graph("a = Relu(x) y = Sigmoid(a)").SerializeToString()
    path.write_bytes(data[: len(data) // 2])


@no_model
def pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


@no_model
def directory(path: Path) -> None:
    path.mkdir()


@no_model
def missing(path: Path) -> None:
    pass


@bad
def cyclic(path: Path) -> None:
    write(path, graph("a = Add(x, b) b = Relu(a) y = Neg(b)"))


@bad
def duplicates(path: Path) -> None:
    write(path, graph("a = Relu(x) a = Neg(x) y = Abs(a)"))


@bad
def an_opset_of_any_number(path: Path) -> None:
    model = graph("y = Relu(x)")
    model.opset_import[0].version = 2**40
    write(path, model)


@bad
def a_node_without_its_weights(path: Path) -> None:
    write(path, graph("y = Conv(x)"))


@bad
def a_weight_without_its_data(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    write(path, model)


@bad
def a_negative_size(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[-5])
    write(path, model)


@no_model
def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@bad
def undefined(path: Path) -> None:
    write(path, graph("y = Add(x, nowhere)"))


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
    write(path, model)


@bad
def awkward_names(path: Path) -> None:
    model = graph("a = Sum(x) y = Neg(a)")
    for node, name in zip(model.graph.node, ('a"{b}\n%s', "\x1b[31m../../etc"), strict=True):
        node.name = name
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "in'ner\n{0}\\"
    write(path, model)


@bad
def awkward_inputs(path: Path) -> None:
    model = graph("y = Sum(x)")
    model.graph.input[0].name = model.graph.node[0].input[0] = "../x\n{}"
    write(path, model)


@bad
def an_operator_of_texts(path: Path) -> None:
    write(path, graph("y = StringNormalizer(x)", "string[2] x", output="string[2] y"))


@bad
def no_opset(path: Path) -> None:
    model = graph("y = Relu(x)")
    del model.opset_import[:]
    write(path, model)


@bad
def a_body_that_is_missing(path: Path) -> None:
    path.write_bytes(helper.make_model(graph("y = If(x)", "bool x").graph).SerializeToString())


@bad
def a_cycle_in_a_body(path: Path) -> None:
    body = graph("a = Add(x, b) b = Relu(a)", output="float b").graph
    model = graph("c = ReduceMax<keepdims=0>(x) d = Cast<to=9>(c)")
    model.graph.node.append(helper.make_node("If", ["d"], ["y"], then_branch=body, else_branch=body))
    write(path, model)


@bad
def a_function_that_calls_itself(path: Path) -> None:
    text = f"""
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g ({ROWS} x) => ({ROWS} y) {{ y = local.f(x) }}
        <domain: "local", opset_import: ["" : 18, "local" : 1]> f (a) => (b) {{ b = local.f(a) }}"""
    write(path, onnx.parser.parse_model(text))


@bad
def two_weights_of_one_name(path: Path) -> None:
    model = graph("y = Add(x, w)")
    for value in (1, 2):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(8, value, np.float32), "w"))
    write(path, model)


@bad
def two_inputs_of_one_name(path: Path) -> None:
    write(path, graph("y = Add(x, x)", f"{ROWS} x, {ROWS} x"))


@bad
def side_file_with_backslashes(path: Path) -> None:
    path.write_bytes(weighted("..\\secret.bin"))


@bad
def side_file_in_a_linked_folder(path: Path) -> None:
    (path.parent / "in").symlink_to(path.parent.parent)
    path.write_bytes(weighted("in/secret.bin"))


@bad
def side_file_that_is_the_folder(path: Path) -> None:
    path.write_bytes(weighted("."))


@bad
def side_file_that_is_a_loop(path: Path) -> None:
    (path.parent / "w.bin").symlink_to("w.bin")
    path.write_bytes(weighted("w.bin"))


@bad
def side_file_of_a_long_name(path: Path) -> None:
    path.write_bytes(weighted("w" * 5000))


@bad
def side_file_of_a_name_with_a_break(path: Path) -> None:
    path.write_bytes(weighted("a\nb\0c\x1b[31m"))


@bad
def side_file_cut(path: Path) -> None:
    (path.parent / "w.bin").write_bytes(bytes(20))
    path.write_bytes(weighted("w.bin"))


@bad
def side_file_before_its_start(path: Path) -> None:
    (path.parent / "w.bin").write_bytes(bytes(32))
    path.write_bytes(weighted("w.bin", offset="-4"))


@bad
def side_file_of_many_digits(path: Path) -> None:
    (path.parent / "w.bin").write_bytes(bytes(32))
    path.write_bytes(weighted("w.bin", offset="9" * 5000, length="--32"))


@bad
def names_of_weights_and_outputs(path: Path) -> None:
    model = graph("y = Add(x, w)")
    model.graph.name = model.graph.node[0].input[1] = "w\"'{}\n%s"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(8, np.float32), "w\"'{}\n%s"))
    model.graph.output[0].name = model.graph.node[0].output[0] = "\x1b[31m../y\n"
    write(path, model)


@bad
def an_operator_of_any_name(path: Path) -> None:
    model = graph("y = Relu(x)")
    model.graph.node[0].op_type, model.graph.node[0].domain = "Re\nlu{}", "\x1b[31m'"
    write(path, model)


@bad
def sizes_with_awkward_names(path: Path) -> None:
    model = graph("y = Relu(x)")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "\x1b[31m\n{n}"
    write(path, model)


@bad
def an_equation_with_lone_dots(path: Path) -> None:
    """Where onnx and ONNX Runtime never come back."""
    write(path, graph('y = Einsum<equation="n..i,...i->n..i">(x, x)'))


def constant_of_2_gb(path: Path) -> None:
    """Write a sparse file: only its head is on the disk."""
    size = 2**31
    raw = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**29]).SerializeToString() + field_prefix(9, size)
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString()
    attribute += field_prefix(5, len(raw) + size) + raw
    node = onnx.NodeProto(op_type="Constant", output=["y"]).SerializeToString()
    node += field_prefix(5, len(attribute) + size) + attribute
    inside = field_prefix(1, len(node) + size) + node
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)]).SerializeToString()
    with path.open("wb") as file:
        file.write(head + field_prefix(7, len(inside) + size) + inside)
        file.truncate(file.tell() + size)
