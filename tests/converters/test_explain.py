"""`explain`: what Sentis makes of real exports and of hand-written graphs, with the exit codes of the command sheet."""

from __future__ import annotations

import json

import onnx
import pytest
from click.testing import CliRunner
from fusion_forms import RMS, SCALARS
from scan_cases import graph

from converters import commands
from converters.explain import HALF, explain
from mlx_sentis.demo.toy import MODEL_TYPES

NORMS = {"gemma3_text": 6, "qwen3": 4}  # a layer; two for all others
LAYERS = 2


def call(*arguments):
    return CliRunner().invoke(commands.explain, [str(argument) for argument in arguments])


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_norm_and_swish_of_an_export_becomes_one_layer(exported, model_type):
    found = explain(exported(model_type).onnx, "2.6")
    layers = found.prediction.layers
    assert layers["RMSNormalization"] == LAYERS * NORMS.get(model_type, 2) + 1
    assert not layers.keys() & {"ReduceMean", "Sqrt", "Div", "Sigmoid", "Shape", "Expand", "Identity"}
    assert found.prediction.not_predicted == [] and found.prediction.layer_count < found.nodes
    if model_type != "gemma3_text":
        assert layers["Swish"] == LAYERS and found.prediction.misses == []


def test_the_tanh_form_of_gelu_is_left_apart_because_the_fused_one_computes_something_else(exported):
    found = explain(exported("gemma3_text").onnx, "2.6").prediction
    assert found.layers["Tanh"] == LAYERS and "GeluFast" not in found.layers
    assert [(miss.fusion, len(miss.nodes)) for miss in found.misses] == [("GeluFast", 9)] * LAYERS
    assert any(reason.why.startswith("x · x · x stands for") for reason in found.misses[0].reasons)
    assert "not equal to torch's tanh form" in found.misses[0].numbers


def test_biases_of_products_become_dense(exported):
    found = explain(exported("qwen2").onnx, "2.4").prediction
    assert found.layers["Dense"] == 3 * LAYERS and found.verified


def test_a_norm_written_with_reciprocal_is_told_at_its_node(exported, tmp_path):
    model = onnx.load(str(exported("llama").onnx))
    one = next(node for node in model.graph.node if node.op_type == "Div")
    one.op_type = "Reciprocal"
    del one.input[0]
    path = tmp_path / "changed.onnx"
    path.write_bytes(model.SerializeToString())
    found = explain(path, "2.6").prediction
    (miss,) = found.misses
    assert found.layers["Rsqrt"] == 1 and one.name in miss.nodes and miss.fusion == "RMSNormalization"
    assert "write Div(1, Sqrt(·))" in call(path).stdout


def test_fp16_weights_are_said_to_be_widened(exported):
    found = explain(exported("llama", dtype="fp16").onnx, "2.6")
    assert found.half_weights > 10 and HALF in str(found)
    assert found.prediction.layers == explain(exported("llama").onnx, "2.6").prediction.layers  # casts are folded


def test_exit_codes_and_the_document(tmp_path):
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    words = {"inputs": "float[2,3,8] x", "output": "float[2,3,8] y", "opset": 17}
    good.write_bytes(graph(RMS, init=SCALARS, **words).SerializeToString())
    bad.write_bytes(graph("a = Mystery(x) y = Neg(a)", **words).SerializeToString())
    answer = call(good, "--json")
    document = json.loads(answer.stdout)
    assert answer.exit_code == 0 and document["schema"] == "mlx-sentis/explain/1"
    assert (document["layers"], document["predicted"], document["verified"]) == ({"RMSNormalization": 1}, True, False)
    assert document["fused"][0]["nodes"] == ["p", "m", "a", "s", "q", "n", "y"]
    assert "7 nodes → 1 layers" in call(good).stdout and "not verified for 2.6" in call(good).stdout
    stopped = call(bad)
    assert stopped.exit_code == 3 and "Mystery 'a': not handled, the import stops" in stopped.stdout
    assert call(tmp_path / "gone.onnx").exit_code == 1
    unknown = call(good, "--sentis", "3.0")
    assert unknown.exit_code == 1 and "not predicted" in unknown.stderr


@pytest.mark.parametrize("body, why", [
    ("a = Relu(x) a = Neg(x) y = Abs(a)", "'a': Neg: two nodes make a tensor"),
    ("y = Add(x, nowhere)", "reads 'nowhere': nothing makes this tensor"),
])  # fmt: skip
def test_of_a_graph_that_is_not_sound_no_layers_are_predicted(tmp_path, body, why):
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(body).SerializeToString())
    prediction = explain(path).prediction
    assert not prediction.layers and any(why in told for told in prediction.not_predicted)


def outside(folder, location: str, count: int = 3) -> onnx.ModelProto:
    model = graph("y = Relu(x)")
    for index in range(count):
        tensor = model.graph.initializer.add(name=f"w{index}", data_type=1, dims=[4], data_location=1)
        for key, value in (("location", location), ("offset", str(16 * index)), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
    return model


def test_weights_that_stop_the_import_leave_nothing_to_predict(tmp_path):
    path = tmp_path / "m.onnx"
    (tmp_path / "w.bin").write_bytes(bytes(48))
    path.write_bytes(outside(tmp_path, "w.bin").SerializeToString())
    assert call(path).exit_code == 0 and explain(path).prediction.layers == {"Relu": 1}
    (tmp_path / "w.bin").write_bytes(bytes(40))  # what is missing is read as zeros
    assert explain(path).prediction.layers == {"Relu": 1}
    path.write_bytes(outside(tmp_path, "gone.bin").SerializeToString())
    (why,) = explain(path).prediction.not_predicted
    assert why.startswith("'w0' and 2 more: 'gone.bin': its side file is not there: the import throws")
    assert call(path).exit_code == 3 and explain(path).as_json()["layers"] == {}
    model = graph("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=1, dims=[3], raw_data=bytes(8))
    path.write_bytes(model.SerializeToString())
    assert "the bytes do not fit the shape" in explain(path).prediction.not_predicted[0]


def test_a_circle_is_told_with_the_name_of_its_file(tmp_path):
    path = tmp_path / "round.onnx"
    path.write_bytes(graph("a = Add(x, b) b = Relu(a) y = Neg(b)").SerializeToString())
    answer = call(path)
    assert answer.exit_code == 3 and "a cycle aborts the import" in answer.stdout and "round.onnx" in answer.stdout


def test_many_reasons_are_counted(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(" ".join(f"y{at} = Mystery{at}(x)" for at in range(15))).SerializeToString())
    shown = [line for line in call(path).stdout.splitlines() if line.startswith("not predicted: ")]
    assert len(shown) == 11 and shown[-1] == "not predicted: 5 reasons more"
