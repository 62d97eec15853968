from __future__ import annotations

import json
import time

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from converters.facts import facts, versions
from converters.finding import Finding
from converters.scan import scan
from mlx_sentis.demo.toy import write_toy_model
from weights_bridge.errors import StageError


def model_of(
    body: str, opsets: str = '"" : 18', inputs: str = "float[2,8] x", outputs: str = "float[2,8] y"
) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{opsets}]> g ({inputs}) => ({outputs}) {{ {body} }}"
    )


@pytest.fixture
def scanned(tmp_path):
    def run(model: onnx.ModelProto, sentis: str = "2.6") -> list[Finding]:
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return scan(path, sentis)

    return run


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def test_a_clean_graph_has_no_findings(scanned):
    assert scanned(model_of("y = Relu(x)")) == []


@pytest.mark.parametrize(
    "body, opsets, wanted, taxonomy",
    [
        ("y = com.microsoft.FastGelu(x)", '"" : 18, "com.microsoft" : 1', "OPERATOR.CONTRIB", "A"),
        ("y = com.acme.Whirl(x)", '"" : 18, "com.acme" : 1', "OPERATOR.CONTRIB", "A"),
        ("y = com.microsoft.Gelu(x)", '"" : 18, "com.microsoft" : 1', "OPERATOR.DOMAIN_IGNORED", "A"),
        ("y = LpNormalization(x)", '"" : 18', "OPERATOR.UNSUPPORTED", "A"),
        ("s = Constant<value_float=0.1>()\ny = QuantizeLinear(x, s)", '"" : 18', "OPERATOR.QUANTISED", "A"),
        ("y, i = TopK<largest=0>(x, x)", '"" : 18', "TOPK.SMALLEST_NEGATIVE", "C"),
        ("y = Sum(x)", '"" : 18', "SUM.SINGLE_INPUT", "C"),
        ("y = LayerNormalization(x, x)", '"" : 18', "LAYERNORM.NO_BIAS", "C"),
        ("y = MaxPool<kernel_shape=[2], ceil_mode=1>(x)", '"" : 18', "MAXPOOL.CEIL", "C"),
        ("y = Softmax(x)", '"" : 11', "SOFTMAX.OPSET_LT13", "C"),
        ("y = Relu(x)", '"" : 26', "OPSET.WINDOW", ""),
        ("y = Relu(x)", '"" : 6', "OPSET.WINDOW", ""),
        ("y = Relu(x)", '"ai.onnx" : 18', "OPSET.DOMAIN", ""),
    ],
)
def test_each_finding_has_its_id_and_class(scanned, body, opsets, wanted, taxonomy):
    found = scanned(model_of(body.replace("\n", " "), opsets))
    assert [(f.id, f.taxonomy) for f in found] == [(wanted, taxonomy)]
    assert found[0].blocking and found[0].what and found[0].mend


@pytest.mark.parametrize(
    "body, opset",
    [
        ("y = Softmax(x)", 13),
        ("y = Softmax<axis=-1>(x)", 11),
        ("y, i = TopK(x, x)", 18),
        ("y = Sum(x, x)", 18),
        ("y = MaxPool<kernel_shape=[2], ceil_mode=0, dilations=[1]>(x)", 18),
    ],
)
def test_a_rule_stays_silent_where_it_does_not_apply(scanned, body, opset):
    assert scanned(model_of(body, f'"" : {opset}')) == []


def test_control_flow_is_found_and_its_bodies_are_searched(scanned):
    model = model_of(
        """
        c = Constant<value = bool {1}>()
        y = If(c) <
          then_branch = a () => (float[2,8] p) { p = Relu(x) },
          else_branch = b () => (float[2,8] q) { q = com.microsoft.FastGelu(x) }
        >
    """,
        '"" : 18, "com.microsoft" : 1',
    )
    found = scanned(model)
    assert ids(found) == ["CONTROL_FLOW", "OPERATOR.CONTRIB", "TENSOR.TYPED_FIELD"]  # the parser stores bool as int32
    assert found[0].taxonomy == "B" and found[1].node.startswith("If / ")


def test_local_functions_are_found(scanned):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 18]> f (a) => (b) { b = Relu(a) }
    """)
    assert ids(scanned(model)) == ["FUNCTION.LOCAL"]


def test_versions_differ_where_their_facts_do(scanned):
    model = model_of("y = Swish<alpha=1.5>(x)", '"" : 15')
    assert ids(scanned(model, "2.4")) == ["SWISH.ALPHA"] and scanned(model, "2.6") == []
    norm = model_of("y = RMSNormalization(x, x)", '"" : 15')
    assert ids(scanned(norm, "2.5")) == ["OPERATOR.UNSUPPORTED"] and scanned(norm, "2.6") == []
    assert ids(scanned(model_of("y = Relu(x)"), "2.4")) == ["OPSET.WINDOW"]


def test_an_unknown_version_is_not_predicted():
    with pytest.raises(StageError, match="not predicted") as caught:
        facts("2.9")
    assert all(version in caught.value.hint for version in versions()) and "2.6" in versions()


def with_tensor(tensor: TensorProto, body: str = "y = Relu(x)") -> onnx.ModelProto:
    model = model_of(body)
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize(
    "tensor, wanted",
    [
        (helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.0, 2.0]), "TENSOR.TYPE"),
        (helper.make_tensor("w", TensorProto.FLOAT16, [2], [1.0, 2.0]), "TENSOR.TYPED_FIELD"),
        (numpy_helper.from_array(np.zeros([1] * 9, np.float32), "w"), "TENSOR.RANK"),
        (TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"12345678"), "TENSOR.BYTES"),
        (numpy_helper.from_array(np.array([2**40]), "w"), "INT64.RANGE"),
    ],
)  # fmt: skip
def test_tensors_that_sentis_misreads_are_found(scanned, tensor, wanted):
    found = scanned(with_tensor(tensor))
    assert ids(found) == [wanted] and found[0].node == "w" and found[0].blocking


def test_the_end_sentinel_of_a_slice_is_a_warning_only(scanned):
    found = scanned(with_tensor(numpy_helper.from_array(np.array([2**63 - 1]), "w")))
    assert ids(found) == ["INT64.RANGE"] and not found[0].blocking


def test_float16_as_raw_data_is_fine(scanned):
    assert scanned(with_tensor(numpy_helper.from_array(np.ones(2, np.float16), "w"))) == []


def test_duplicate_names_ranks_and_inputs(scanned):
    model = with_tensor(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model.graph.initializer.append(model.graph.initializer[0])
    assert ids(scanned(model)) == ["TENSOR.DUPLICATE"]
    assert ids(scanned(model_of("y = Relu(x)", inputs="string[2] x"))) == ["INPUT.TYPE"]
    nine = model_of("y = Transpose<perm=[8,7,6,5,4,3,2,1,0]>(x)")
    assert ids(scanned(nine)) == ["TENSOR.RANK"]


def external(tmp_path, offsets, lengths=None, location="w.bin", size=64) -> onnx.ModelProto:
    (tmp_path / "w.bin").write_bytes(bytes(size))
    model = model_of("y = Relu(x)")
    for index, offset in enumerate(offsets):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[4])
        tensor.data_location = TensorProto.EXTERNAL
        length = (lengths or [16] * len(offsets))[index]
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ({"offsets": [0, 16, 32]}, ["EXTERNAL.DATA"]),
        ({"offsets": [16, 0]}, ["EXTERNAL.OFFSET", "EXTERNAL.OFFSET"]),
        ({"offsets": [0, 32]}, ["EXTERNAL.OFFSET", "EXTERNAL.DATA"]),
        ({"offsets": [0, 16], "lengths": [12, 16]}, ["EXTERNAL.LENGTH", "EXTERNAL.OFFSET", "EXTERNAL.DATA"]),
        ({"offsets": [0], "location": "../w.bin"}, ["EXTERNAL.PATH"]),
        ({"offsets": [0], "location": "gone.bin"}, ["EXTERNAL.MISSING"]),
        ({"offsets": [0], "size": 8}, ["EXTERNAL.SHORT", "EXTERNAL.DATA"]),
    ],
)
def test_external_layouts_are_replayed_as_the_importer_reads_them(scanned, tmp_path, arguments, wanted):
    found = scanned(external(tmp_path, **arguments))
    assert ids(found) == wanted and {f.taxonomy for f in found} == {"D"}


def test_a_model_directory_is_judged_without_its_weights(tmp_path):
    folder = write_toy_model(tmp_path / "m", "qwen3")
    assert scan(folder) == []
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    assert ids(scan(folder)) == ["MODEL.ARCHITECTURE"]
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 2_000_000, "hidden_size": 512}))
    assert ids(scan(folder)) == ["MODEL.SIZE", "MODEL.TENSORS"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    assert ids(scan(folder)) == ["MODEL.WEIGHTS"]


def test_a_folder_of_files_names_the_file_of_each_finding(tmp_path):
    (tmp_path / "a.onnx").write_bytes(model_of("y = Relu(x)").SerializeToString())
    (tmp_path / "b.onnx").write_bytes(model_of("y = Sum(x)").SerializeToString())
    (finding,) = scan(tmp_path)
    assert finding.node == "b.onnx: y"
    with pytest.raises(StageError, match="neither"):
        (tmp_path / "empty").mkdir()
        scan(tmp_path / "empty")


def test_a_file_of_100_mb_is_scanned_in_under_a_second(tmp_path):
    model = with_tensor(numpy_helper.from_array(np.zeros((5000, 5000), np.float32), "w"))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    started = time.monotonic()
    assert scan(tmp_path / "m.onnx") == []
    assert time.monotonic() - started < 1


def test_facts_are_complete_and_small():
    from importlib import resources

    known = facts("2.4")
    assert len(known["handled"]) == 147 and len(known["not_handled"]) == 198
    assert not set(known["handled"]) & {row["op"] for row in known["not_handled"] if not row["domain"]}
    assert facts("2.6")["opset_window"] == [7, 25] and facts("2.5")["opset_window"] == [7, 15]
    files = list(resources.files("converters").joinpath("sentis").iterdir())
    assert sum(len(file.read_bytes()) for file in files) < 100_000


def test_damaged_files_give_findings_or_one_line_never_a_traceback(scanned, tmp_path):
    model = external(tmp_path, [0, 16])
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**40]), "big"))
    whole, rng = model.SerializeToString(), np.random.default_rng(0)
    outcomes = set()
    for _ in range(600):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            damaged[place] = rng.integers(0, 256)
        (tmp_path / "m.onnx").write_bytes(bytes(damaged))
        try:
            scan(tmp_path / "m.onnx")
            outcomes.add("findings")
        except StageError as error:
            assert "\n" not in error.message
            outcomes.add("one line")
    assert outcomes == {"findings", "one line"}


def test_an_element_type_nobody_knows_is_a_finding(scanned):
    found = scanned(with_tensor(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1234")))
    assert ids(found) == ["TENSOR.BYTES", "TENSOR.TYPE"] and "number 99" in found[1].what
