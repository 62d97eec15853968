"""Where a miss begins: each planted cause is found in its step, in the order in which to look."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers import call
from onnx.external_data_helper import convert_model_to_external_data
from sentis_dumps import edit_dump
from triple_cases import Case, steps

from converters.facts import facts
from parity.triple.causes import CAUSES, Suspect

SUM = """<ir_version: 10, opset_import: ["": 18]>
two (float[3] x) => (float[3] y) {
    a = Tanh(x)
    b = Sum(a)
    y = Sigmoid(b)
}"""
ORDER = ["1", "2", "2a", "2b", "2c", "2d"]


def numbers(document: dict) -> list[str]:
    return [step["number"] for step in document["steps"]]


def test_a_predicted_miss_names_the_first_node_that_differs_and_the_one_before_it(case: Callable[..., Case]) -> None:
    one = case(SUM, {"x": np.asarray([0.1, -0.2, 0.3], np.float32)})
    document = one.asked(code=3)
    assert numbers(document)[:6] == ORDER
    found = steps(document)
    assert "first at Sum" in found["2"] and "'a' before it agrees" in found["2"]
    assert "SUM.SINGLE_INPUT" in found["2b"] or "SUM.SINGLE_INPUT" in found.get("2e", "")
    (third,) = [step for step in document["steps"] if step["number"] == "3"]
    assert "--from a --out" in third["command"]


def spaced(one: Case) -> Case:
    """Return a case whose graph lies at a path that a shell must be told in quotes."""
    model = one.folder / "my models" / "it's.onnx"
    model.parent.mkdir()
    one.model.rename(model)
    return dataclasses.replace(one, model=model)


def test_the_command_that_is_proposed_mends_the_miss(case: Callable[..., Case]) -> None:
    one = spaced(case(SUM, {"x": np.asarray([0.1, -0.2, 0.3], np.float32)}))
    commands = [step["command"] for step in one.asked(code=3)["steps"] if step["command"].startswith("mlx-sentis fix")]
    words = shlex.split(commands[0])[1:]
    assert call(*words).exit_code == 0
    fixed = words[words.index("--out") + 1]
    done = call("parity", "--model", fixed, "--fixture", one.fixture, "--edge", "ab")
    assert done.exit_code == 0, done.stdout


def test_weights_that_sentis_reads_from_the_wrong_place_are_the_first_cause(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    two (float[2, 4] x) => (float[2, 4] y) { a = MatMul(x, v) y = MatMul(a, w) }"""
    rng = np.random.default_rng(1)
    v, w = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    one = case(text, {"x": rng.standard_normal((2, 4)).astype(np.float32)}, v=v, w=w)
    model = onnx.load(one.model)
    convert_model_to_external_data(model, location="side.bin", size_threshold=0)
    (one.folder / "side.bin").write_bytes(w.tobytes() + v.tobytes())  # the other way round, as offsets say
    for tensor, offset in zip(model.graph.initializer, (64, 0), strict=True):
        tensor.ClearField("raw_data")
        del tensor.external_data[:]
        for key, value in (("location", "side.bin"), ("offset", offset), ("length", 64)):
            tensor.external_data.add(key=key, value=str(value))
    one.model.write_bytes(model.SerializeToString())
    document = one.asked(code=3)
    assert document["rows"][0]["verdict"] == "pass"  # ONNX Runtime heeds the offsets
    found = steps(document)
    assert "EXTERNAL.OFFSET" in found["2a"]
    assert [found[number] for number in ("2b", "2c", "2d")] == ["nothing known"] * 3
    assert "first at MatMul" in found["2"]


def test_a_mask_cast_to_bool_is_found_as_such(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    mask (float[3] x) => (float[3] y) { b = Cast<to = 9>(x) f = Cast<to = 1>(b) y = Mul(f, x) }"""
    document = case(text, {"x": np.asarray([0.5, 2, 0], np.float32)}).asked(code=3)
    assert "CAST.TO_BOOL" in steps(document)["2c"]
    assert steps(document)["2a"] == "nothing known"


def test_int64_beyond_int32_is_the_last_cause(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    big (int64[2] x) => (int64[2] y) { y = Add(x, c) }"""
    document = case(text, {"x": np.asarray([1, 2])}, c=np.asarray([2**40, 3])).asked(code=3)
    assert "INT64.RANGE" in steps(document)["2d"]
    assert document["rows"][1]["reason"] == "differs"


def test_a_measured_miss_that_is_not_predicted_says_which_outputs_miss_and_how_to_go_on(linear: Case) -> None:
    from triple_cases import ort

    found = ort(linear.model, linear.inputs)
    dump = linear.dump({"y": found["y"] + np.float32(0.5), "best": found["best"]})
    document = linear.asked("--sentis-dump", dump, code=3)
    told = next(step for step in document["steps"] if step["number"] == "2")
    assert "first output that misses: y (1 output of 2)" in told["found"]
    assert "the emulator agrees with ONNX Runtime at every tensor" in told["found"]
    assert "there is no tensor inside that is no output" in told["found"] and told["command"] == ""
    assert numbers(document) == [*ORDER, "3", "4"]


def _cut(folder: Path) -> None:
    (path,) = folder.glob("CPU/f/0.bin")
    path.write_bytes(path.read_bytes()[:-1])


def _of_other_inputs(folder: Path) -> None:
    edit_dump(folder, lambda document: document["models"][0]["runs"][0].update(fixture="g", fixture_sha256="0" * 64))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_cut, "truncated"),
        (lambda folder: (folder / "CPU/f/0.bin").unlink(), "no file"),
        (lambda folder: edit_dump(folder, lambda document: document.update(version="2.5.0")), "another version"),
        (_of_other_inputs, "not recorded"),
    ],
)
def test_what_a_dump_lacks_is_no_fault_of_the_import(
    linear: Case, spoil: Callable[[Path], object], reason: str
) -> None:
    dump = linear.dump()
    spoil(dump)
    document = linear.asked("--sentis-dump", dump, code=3)
    (step,) = document["steps"]
    assert step["number"] == "0" and reason in step["found"] and "no word about the model" in step["found"]
    assert [row["max_abs"] for row in document["rows"]] == [0.0, None, None]  # nothing looks equal that is not there


def test_the_command_that_writes_inner_tensors_as_outputs_works(case: Callable[..., Case]) -> None:
    from triple_cases import ort

    text = """<ir_version: 10, opset_import: ["": 18]>
    long (float[3] x) => (float[3] y) { a = Abs(x) b = Exp(a) c = Neg(b) d = Abs(c) e = Sqrt(d) f = Neg(e) g = Exp(f)
        h = Neg(g) y = Abs(h) }"""
    one = spaced(case(text, {"x": np.asarray([1, 2, 3], np.float32)}))
    dump = one.dump({"y": ort(one.model, one.inputs)["y"] + np.float32(1)})
    document = one.asked("--sentis-dump", dump, code=3)
    command = next(step["command"] for step in document["steps"] if step["number"] == "2")
    words = shlex.split(command.replace("probe.onnx", str(one.folder / "probe.onnx")))[1:]
    assert words.count("--to") == 6
    assert call(*words).exit_code == 0
    assert len(onnx.load(one.folder / "probe.onnx").graph.output) == 6


def test_nothing_is_looked_for_where_every_edge_holds(linear: Case) -> None:
    assert linear.asked()["steps"] == []


@pytest.mark.parametrize(
    ("rule", "operator", "cause"),
    [
        ("EXTERNAL.OFFSET", "", "external data"),
        ("CONSTANT.EXTERNAL", "Constant", "external data"),
        ("ATTRIBUTE.IGNORED", "Foo", "dropped attribute"),
        ("MAXPOOL.CEIL", "MaxPool", "dropped attribute"),
        ("LAYERNORM.AXIS", "LayerNormalization", "dropped attribute"),
        ("SOFTMAX.OPSET_LT13", "Softmax", "dropped attribute"),
        ("AND.NONBOOL", "And", "mask or bool"),
        ("CAST.TO_BOOL", "Cast", "mask or bool"),
        ("CAST.INT64", "Cast", "int64 → int32"),
        ("INT64.RANGE", "", "int64 → int32"),
        ("RELU.INF", "Relu", ""),
        ("TOPK.SMALLEST_NEGATIVE", "TopK", "dropped attribute"),
    ],
)
def test_each_rule_belongs_to_one_cause_at_most(rule: str, operator: str, cause: str) -> None:
    known = facts("2.6")
    mine = [one.name for one in CAUSES if one.covers(Suspect(rule, operator, "n", ""), known)]
    assert mine == ([cause] if cause else [])


def test_no_rule_of_the_facts_belongs_to_two_causes() -> None:
    known = facts("2.6")
    for rule in known.rules.values():
        for operator in rule.ops or ("",):
            suspect = Suspect(rule.id, operator, "n", "")
            assert sum(one.covers(suspect, known) for one in CAUSES) <= 1, rule.id
