"""The order of the steps walked as a user walks it: each planted fault is the one that the walk ends at, and mending
what it ends at leads to the next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import call
from onnx import numpy_helper
from sentis_dumps import edit_dump, write_graph
from triple_cases import Arrays, Case, ort, steps

from parity.budgets import load_budgets
from parity.triple.bisection import Context, find_the_place
from parity.triple.measure import Asked, measure_triple

CAUSES = {"2a": "external data", "2b": "dropped attribute", "2c": "mask or bool", "2d": "int64 → int32"}
FOUR = """<ir_version: 10, opset_import: ["": 18]>
four (float[1, 1, 6, 6] x) => (float[1, 1, 6, 6] weights, float[1, 1, 6, 6] pooled, float[1, 1, 6, 6] masked,
    float[1] counted) {
    scaled = Mul(x, a)  weights = Add(scaled, b)
    pooled = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(x)
    mask = Cast<to = 9>(x)  kept = Cast<to = 1>(mask)  masked = Mul(kept, x)
    counted = Cast<to = 1>(n)
}"""
X = (np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6) - 5) / 8


def end_of(document: dict[str, Any]) -> str:
    """Return where the walk ends: the dump, an edge that is mended first, or the first cause with something known."""
    found = steps(document)
    if "0" in found:
        return "the dump"
    if "the import" not in found["1"]:
        return "edge A" if "mend the export" in found["1"] else "edge A∘B"
    return next((CAUSES[number] for number in CAUSES if found[number] != "nothing known"), found["2"])


def swapped_beside(model: Path) -> None:
    """Put the weights of a graph into a side file, the last one first, as their offsets say."""
    loaded = onnx.load(model)
    tensors = [one for one in loaded.graph.initializer if one.data_type == 1]
    at, data = 0, b""
    for tensor in reversed(tensors):
        held = numpy_helper.to_array(tensor).tobytes()
        tensor.ClearField("raw_data")
        tensor.data_location = tensor.EXTERNAL
        for key, value in (("location", f"{model.stem}.bin"), ("offset", at), ("length", len(held))):
            tensor.external_data.add(key=key, value=str(value))
        at, data = at + len(held), data + held
    model.with_name(f"{model.stem}.bin").write_bytes(data)
    model.write_bytes(loaded.SerializeToString())


def test_four_causes_at_once_are_met_in_their_order_each_mended_by_the_command_of_its_step(tmp_path: Path) -> None:
    a, b = X / 3 + 1, X * 2 - 1
    model = write_graph(tmp_path / "m.onnx", FOUR, a=a, b=b, n=np.asarray([2**40]))
    swapped_beside(model)
    fixture = tmp_path / "f.npz"
    np.savez(fixture, **{"in::x": X})  # pyright: ignore[reportArgumentType]
    met, left, document = [], {}, {}
    for _ in range(len(CAUSES)):
        document = Case(tmp_path, model, fixture, {"x": X}).asked(edge="b", code=3)
        met.append(end_of(document))
        (step,) = [step for step in document["steps"] if CAUSES.get(step["number"]) == met[-1]]
        words = shlex.split(step["command"])[1:]
        done = call(*words, "--json")
        assert done.exit_code == 0, step
        left = {name: why for row in json.loads(done.stdout)["passes"] for name, why in row["left"].items()}
        model = Path(words[words.index("--out") + 1])
    assert met == [*CAUSES.values()]
    assert "n" in left  # no integer of Sentis holds it: the last cause has no mend that keeps the number
    levels = {one["tensor"]: one["passed"] for one in document["rows"][0]["results"]}
    assert levels == {"weights": True, "pooled": True, "masked": True, "counted": False}


def test_a_fault_of_the_export_is_mended_before_one_of_the_import_is_looked_for(case: Callable[..., Case]) -> None:
    right = """<ir_version: 10, opset_import: ["": 18]>
    right (float[3] x) => (float[3] y) { a = Tanh(x) b = Sum(a) y = Sigmoid(b) }"""
    x = {"x": np.asarray([0.1, -0.2, 0.3], np.float32)}
    wanted = ort(case(right, x).model, x)
    # a wrong operator, and a Sum of one tensor, which Sentis doubles
    document = case(right.replace("Tanh", "Erf"), x, out=wanted).asked(code=3)
    assert end_of(document) == "edge A" and not CAUSES.keys() & steps(document).keys()
    assert [row["verdict"] for row in document["rows"]] == ["FAIL", "FAIL", "FAIL"]
    mended = steps(case(right, x, out=wanted).asked(code=3))
    assert "the import" in mended["1"] and "first at Sum" in mended["2"]
    assert case(right.replace("Sum(a)", "Identity(a)"), x, out=wanted).asked()["steps"] == []


def test_what_only_onnx_runtimes_optimiser_changes_is_told_as_that(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    chain (float[4, 64] x) => (float[4, 64] y) {
        d = Div(x, r)  e = Erf(d)  f = Add(e, one)  g = Mul(x, f)  y = Mul(g, h)
    }"""
    x = {"x": np.random.default_rng(2).standard_normal((4, 64)).astype(np.float32)}
    held = {name: np.asarray(value, np.float32) for name, value in (("r", 2**0.5), ("one", 1), ("h", 0.5))}
    one = case(text, x, **held)  # the fixture is what the graph computes as it is written
    document = one.asked("--budget", 1000, code=3)
    (row,) = [row for row in document["rows"] if row["edge"] == "A"]
    assert {result["tensor"]: result["passed"] for result in row["results"]} == {"off / y": True, "all / y": False}
    assert end_of(document) == "edge A" and "only with ONNX Runtime's optimiser" in steps(document)["2"]


def test_a_spoilt_dump_comes_before_everything_and_a_miss_beside_it_is_still_looked_for(linear: Case) -> None:
    found = ort(linear.model, linear.inputs)
    dump = linear.dump({"y": found["y"] + np.float32(0.5), "best": found["best"]}, backends=("CPU", "GPUCompute"))
    (dump / "GPUCompute" / "f" / "0.bin").unlink()
    document = linear.asked("--sentis-dump", dump, code=3)
    assert end_of(document) == "the dump" and "no file" in steps(document)["0"]
    assert "the import" in steps(document)["1"] and "first output that misses: y" in steps(document)["2"]


@pytest.mark.parametrize("fault", ["run", "import"])
def test_what_unity_itself_says_of_a_model_is_no_fault_of_the_dump(linear: Case, fault: str) -> None:
    def spoil(document: dict[str, Any]) -> None:
        model = document["models"][0]
        if fault == "run":
            model["runs"][0].update(error="NullReferenceException", outputs=[])
        else:
            model.update(runs=[], **{"import": {"ok": False, "warnings": [], "errors": ["Foo is not supported"]}})

    dump = linear.dump()
    edit_dump(dump, spoil)
    document = linear.asked("--sentis-dump", dump, code=3)
    assert "0" not in steps(document) and "the import" in steps(document)["1"]


def walked(model: Path, base: Path, fixture: Path) -> dict[str, str]:
    budgets = load_budgets("default")
    asked = Asked(model, {"f": fixture}, ("B",), "2.6")
    triple = measure_triple(asked, budgets)
    find_the_place(triple, asked, Context(model, base=base), budgets.edge_b_db, lambda text: None)
    return {step.number: step.found for step in triple.steps}


def test_the_base_graph_tells_a_fault_of_the_weights_from_one_of_the_structure(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    two (float[2, 4] x) => (float[2, 4] y) { a = MatMul(x, v) s = SUM(a) y = MatMul(s, w) }"""
    drawn = np.random.default_rng(1)

    def written(name: str, operator: str) -> Path:
        v, w = (drawn.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
        return write_graph(tmp_path / name, text.replace("SUM", operator), v=v, w=w)

    fixture = tmp_path / "f.npz"
    np.savez(fixture, **{"in::x": drawn.standard_normal((2, 4)).astype(np.float32)})  # pyright: ignore
    tuned, base = written("tuned.onnx", "Identity"), written("base.onnx", "Identity")
    assert walked(tuned, base, fixture) == {}
    swapped_beside(tuned)
    found = walked(tuned, base, fixture)
    assert "EXTERNAL.OFFSET" in found["2a"] and found["4"].startswith("predicted to hold: the weights, or how they are")
    tuned, base = written("tuned.onnx", "Sum"), written("base.onnx", "Sum")
    found = walked(tuned, base, fixture)
    assert "first at Sum" in found["2"] and found["4"].startswith("predicted to miss as well (first at Sum")


@pytest.mark.parametrize("misses", [True, False])
def test_the_variant_of_step_3_misses_where_the_fault_is_behind_its_tensor(
    case: Callable[..., Case], tmp_path: Path, misses: bool
) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    chain (float[3] x) => (float[3] y) { a = Tanh(x) b = Sum(a) c = Sigmoid(b) y = Neg(c) }"""
    one = case(text, {"x": np.asarray([0.1, -0.2, 0.3], np.float32)})
    (step,) = [step for step in one.asked(code=3)["steps"] if step["number"] == "3"]
    assert "--from a " in step["command"]  # the tensor before the node that differs
    command = step["command"].replace("part.onnx", str(tmp_path / "part.onnx"))
    words = shlex.split(command if misses else command.replace("--from a ", "--from b "))[1:]
    assert call(*words).exit_code == 0
    inner = "a" if misses else "b"
    part: Arrays = {inner: np.tanh(one.inputs["x"])}  # Sum of one tensor is that tensor for ONNX
    np.savez(tmp_path / "part.npz", **{f"in::{name}": array for name, array in part.items()})  # pyright: ignore
    variant = Case(tmp_path, tmp_path / "part.onnx", tmp_path / "part.npz", part)
    document = variant.asked(edge="b", code=3 if misses else 0)
    assert ("first at Sum" in steps(document).get("2", "")) == misses
