"""The table: verdicts of each edge, and whether Sentis' side is measured or predicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call
from sentis_dumps import edit_dump
from triple_cases import LINEAR, Case, ort, rows, steps

from parity.triple.compared import compare_outputs

MEASURED, PREDICTED, NONE = "measured (2.6.0, CPU, 2026-12-01)", "predicted (2.6)", "not part of it"


def moved(case: Case, name: str, by: float) -> dict[str, np.ndarray]:
    found = ort(case.model, case.inputs)
    return found | {name: found[name] + np.asarray(by, found[name].dtype)}


def test_without_a_dump_every_edge_holds_and_sentis_is_predicted(linear: Case) -> None:
    document = linear.asked()
    assert rows(document) == {"A": ("pass", NONE), "B": ("pass", PREDICTED), "A∘B": ("pass", PREDICTED)}
    assert document["passed"] and document["steps"] == [] and document["facts"]["source"] == "predicted"


def test_with_a_dump_sentis_is_measured_on_each_backend_and_never_predicted(linear: Case) -> None:
    document = linear.asked("--sentis-dump", linear.dump(backends=("CPU", "GPUCompute")))
    told = [(row["edge"], row["verdict"], row["sentis"]) for row in document["rows"]]
    gpu = MEASURED.replace("CPU", "GPUCompute")
    both = [("pass", MEASURED), ("pass", gpu)]
    assert told == [("A", "pass", NONE), *(("B", *one) for one in both), *(("A∘B", *one) for one in both)]
    assert document["facts"]["milliseconds"] == {backend: {"f": [40.5, 21.25]} for backend in ("CPU", "GPUCompute")}
    assert document["emulator"] == {"compared": 2, "findings": []}


def test_edge_b_alone_asks_nothing_of_the_original(linear: Case) -> None:
    assert list(rows(linear.asked(edge="b"))) == ["B"]


def test_a_wrong_import_misses_b_and_the_whole_and_a_holds(linear: Case) -> None:
    document = linear.asked("--sentis-dump", linear.dump(moved(linear, "y", 0.01)), code=3)
    assert {edge: verdict for edge, (verdict, _) in rows(document).items()} == {"A": "pass", "B": "FAIL", "A∘B": "FAIL"}
    assert steps(document)["1"] == "B misses on 1 of 1 rows, A∘B misses on 1 of 1 rows, A holds: the import"
    row = document["rows"][1]
    assert (row["worst"], row["reason"]) == ("y", "below budget") and 20 < row["psnr_db"] < 60
    assert row["max_abs"] == pytest.approx(0.01, rel=1e-3)


def test_a_wrong_export_misses_a_and_the_whole_and_is_mended_before_unity(case: Callable[..., Case]) -> None:
    x, w = np.ones((2, 4), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    out = {"y": x @ (w + 0.01), "best": np.full((2, 1), 2)}
    wrong = case(LINEAR, {"x": x}, out, w=w)
    document = wrong.asked("--sentis-dump", wrong.dump(), code=3)
    assert {edge: verdict for edge, (verdict, _) in rows(document).items()} == {"A": "FAIL", "B": "pass", "A∘B": "FAIL"}
    assert steps(document)["1"].endswith("mend the export before Unity is opened")
    assert "2a" not in steps(document)  # causes of the import are not looked for


def test_an_id_that_is_one_off_fails_although_its_psnr_would_pass(linear: Case) -> None:
    document = linear.asked("--sentis-dump", linear.dump(moved(linear, "best", 1)), code=3)
    assert document["rows"][1]["reason"] == "differs"
    assert document["rows"][1]["detail"].startswith("2 of 2 values differ, the first at [0, 0]: found ")


@pytest.mark.parametrize("edge", ["ab", "b"])
def test_inputs_of_another_type_are_named_at_every_edge_and_nothing_is_predicted_of_them(
    linear: Case, edge: str
) -> None:
    np.savez(linear.fixture, **{"in::x": np.ones((2, 4)), "out::y": np.ones((2, 3), np.float32)})  # pyright: ignore
    document = linear.asked(edge=edge, code=3)
    found = [result for row in document["rows"] for result in row["results"]]
    assert {(result["reason"], result["detail"]) for result in found} == {("dtype", "found float64, wanted float32")}


def test_an_output_that_only_one_side_has_fails_by_itself() -> None:
    one, both = {"a": np.ones(2, np.float32)}, {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    assert [(r.tensor, r.reason) for r in compare_outputs(one, both, 100)] == [("a", "exact"), ("b", "extra")]
    assert [(r.tensor, r.reason) for r in compare_outputs(both, one, 100)] == [("a", "exact"), ("b", "missing")]


def test_an_output_that_is_no_tensor_is_named_at_every_edge(case: Callable[..., Case]) -> None:
    x = np.ones((2, 4), np.float32)
    text = """<ir_version: 10, opset_import: ["": 18]>
    pairs (float[2, 4] x) => (seq(float[2, 4]) y) { y = SequenceConstruct(x) }"""
    pairs = case(text, {"x": x}, {"y": x})
    assert {verdict for verdict, _ in rows(pairs.asked(code=3)).values()} == {"FAIL"}
    told = call("parity", "--model", pairs.model, "--fixture", pairs.fixture, "--edge", "ab").stderr
    assert "y: no tensor (a sequence or a map" in told


def test_a_folder_is_no_graph(linear: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(linear.folder)
    done = call("parity", "--model", ".", "--fixture", linear.fixture, "--edge", "ab")
    assert done.exit_code == 1 and "no such file" in done.stderr and "Traceback" not in done.output


def test_two_edges_that_just_hold_may_miss_together(linear: Case) -> None:
    found = ort(linear.model, linear.inputs)
    up = {"y": found["y"] * np.float32(1 + 3e-5), "best": found["best"]}
    down = {"y": found["y"] * np.float32(1 - 3e-5), "best": found["best"]}
    np.savez(linear.fixture, **{"in::x": linear.inputs["x"], **{f"out::{n}": a for n, a in up.items()}})
    levels = {row["edge"]: row["psnr_db"] for row in linear.asked("--sentis-dump", linear.dump(down), code=3)["rows"]}
    assert levels["A∘B"] == pytest.approx(min(levels["A"], levels["B"]) - 6, abs=0.5)
    between = levels["A∘B"] + 3
    document = linear.asked("--sentis-dump", linear.dump(down), "--budget", between, code=3)
    assert [verdict for verdict, _ in rows(document).values()] == ["pass", "pass", "FAIL"]
    assert "each edge for itself holds: their errors add up" in steps(document)["1"]


def test_a_version_without_facts_is_not_predicted_and_no_pass(linear: Case) -> None:
    document = linear.asked("--sentis", "9.9", edge="b", code=3)
    assert rows(document) == {"B": ("not predicted", "predicted (9.9)")} and not document["passed"]
    assert "no facts about Sentis 9.9" in document["rows"][0]["detail"]


def test_a_version_without_facts_can_be_measured(linear: Case) -> None:
    dump = linear.dump(version="9.9.1")
    document = linear.asked("--sentis", "9.9", "--sentis-dump", dump)
    assert rows(document)["B"] == ("pass", "measured (9.9.1, CPU, 2026-12-01)")
    assert "no facts about Sentis 9.9" in document["facts"]["not_predicted"]


def test_a_model_that_does_not_import_fails_and_is_not_called_unknown(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    odd (float[2, 2] x) => (float y) { y = Det(x) }"""
    one = case(text, {"x": np.eye(2, dtype=np.float32)})
    document = one.asked(edge="b", code=3)
    assert document["rows"][0]["verdict"] == "FAIL" and document["rows"][0]["reason"] == "import fails"


def test_a_dump_that_the_emulator_contradicts_is_a_finding_about_the_emulator_and_no_miss(
    case: Callable[..., Case],
) -> None:
    text = '<ir_version: 10, opset_import: ["": 18]> one (float[3] x) => (float[3] y) { y = Sum(x) }'
    one = case(text, {"x": np.asarray([1, 2, 3], np.float32)})
    assert one.asked(edge="b", code=3)["rows"][0]["verdict"] == "FAIL"  # predicted: doubled
    document = one.asked("--sentis-dump", one.dump())  # measured: not doubled
    (finding,) = document["emulator"]["findings"]
    assert (finding["kind"], finding["tensor"]) == ("verdict", "y")
    assert finding["measured"].startswith("pass") and finding["predicted"].startswith("FAIL")
    done = call("parity", "--model", one.model, "--fixture", one.fixture, "--edge", "b", "--sentis-dump", one.dump())
    assert done.exit_code == 0
    assert "1 finding about it (not about the model)" in done.stdout and "emulator, verdict: f / y" in done.stdout


def test_numbers_that_part_within_one_verdict_are_a_finding_too(linear: Case) -> None:
    found = ort(linear.model, linear.inputs)
    wide = {"y": found["y"] * np.float32(1 + 1e-4), "best": found["best"]}
    document = linear.asked("--sentis-dump", linear.dump(wide), "--budget", "60")
    (finding,) = document["emulator"]["findings"]
    assert finding["kind"] == "numbers" and 75 < finding["psnr_db"] < 95


def test_the_gpu_is_not_held_against_an_emulator_of_the_cpu(linear: Case) -> None:
    found = ort(linear.model, linear.inputs)
    wide = {"y": found["y"] * np.float32(1 + 1e-4), "best": found["best"]}
    document = linear.asked("--sentis-dump", linear.dump(wide, backends=("GPUCompute",)), "--budget", "60")
    assert document["emulator"] == {"compared": 0, "findings": []}


BAD: list[tuple[str, Callable[[Path], object], int, str]] = [
    ("not JSON", lambda d: (d / "dump.json").write_text("{"), 1, "not JSON"),
    ("gone", lambda d: (d / "dump.json").unlink(), 1, "did not end"),
    ("upwards", lambda d: edit_dump(d, lambda x: output(x).update(file="../m.onnx")), 1, "leads out of it"),
    ("another package", lambda d: edit_dump(d, lambda x: x.update(version="2.5.0")), 3, "another version"),
    ("another model", lambda d: edit_dump(d, lambda x: x["models"][0].update(sha256="0" * 64)), 3, "another model"),
    (
        "another fixture",
        lambda d: edit_dump(d, lambda x: run_(x).update(fixture_sha256="0" * 64)),
        3,
        "another fixture",
    ),
    ("missing tensor", lambda d: edit_dump(d, lambda x: run_(x)["outputs"].pop()), 3, "missing"),
    (
        "extra tensor",
        lambda d: edit_dump(d, lambda x: run_(x)["outputs"].append(output(x) | {"name": "z"})),
        3,
        "extra",
    ),
    ("wrong name", lambda d: edit_dump(d, lambda x: output(x).update(name="Y")), 3, "missing"),
    ("truncated", lambda d: cut(d), 3, "truncated"),
    ("not a number", lambda d: nan(d), 3, "nan"),
    ("other type", lambda d: edit_dump(d, lambda x: output(x).update(dtype="int32")), 3, "dtype"),
    ("other sizes", lambda d: edit_dump(d, lambda x: output(x).update(shape=[3, 2])), 3, "shape"),
    ("import failed", lambda d: edit_dump(d, failed), 3, "import failed"),
    ("threw", lambda d: edit_dump(d, lambda x: run_(x).update(error="NullReference", outputs=[])), 3, "run failed"),
]


def run_(document: dict[str, Any]) -> dict[str, Any]:
    return document["models"][0]["runs"][0]


def output(document: dict[str, Any]) -> dict[str, Any]:
    return run_(document)["outputs"][0]


def failed(document: dict[str, Any]) -> None:
    document["models"][0].update(runs=[], **{"import": {"ok": False, "warnings": [], "errors": ["no"]}})


def cut(folder: Path) -> None:
    (path,) = folder.glob("CPU/f/0.bin")
    path.write_bytes(path.read_bytes()[:-4])


def nan(folder: Path) -> None:
    (path,) = folder.glob("CPU/f/0.bin")
    np.full(6, np.nan, np.float32).tofile(path)


@pytest.mark.parametrize(("spoil", "code", "told"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_dump_ends_with_its_own_reason_and_no_traceback(
    linear: Case, spoil: Callable[[Path], object], code: int, told: str
) -> None:
    dump = linear.dump()
    spoil(dump)
    words = ["parity", "--model", linear.model, "--fixture", linear.fixture, "--edge", "ab", "--sentis-dump", dump]
    done = call(*words)
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (code, True)
    assert told in done.stderr
    assert "Traceback" not in done.output
    if code == 3:
        document = linear.asked("--sentis-dump", dump, code=3)
        assert rows(document)["A"] == ("pass", NONE)  # what does not need Unity is measured all the same
        assert all(sentis.startswith("measured (") for edge, (_, sentis) in rows(document).items() if edge != "A")
        assert {verdict for edge, (verdict, _) in rows(document).items() if edge != "A"} == {"FAIL"}


@pytest.mark.parametrize("beside", ["[]", "{}", '{"schema": "a-game/contract/2", "sentis": "9", "architecture": 3}'])
@pytest.mark.parametrize("words", [("--edge", "ab"), ("--edge", "a"), ("quantise",)])
def test_a_file_of_another_program_beside_the_graph_is_no_contract(
    linear: Case, beside: str, words: tuple[str, ...]
) -> None:
    linear.model.with_name("contract.json").write_text(beside)
    measure = ("parity", "--model", linear.model, *words) if len(words) > 1 else (*words, linear.model)
    done = call(*measure, "--fixture", linear.fixture)
    assert done.exit_code == 0, done.output
    assert words[-1] == "a" or "2.6" in done.stdout


def test_the_table_for_people_has_every_column_filled(linear: Case) -> None:
    done = call("parity", "--model", linear.model, "--fixture", linear.fixture, "--edge", "ab")
    lines = done.stdout.splitlines()
    for heading in ("edge", "sides", "fixture", "Sentis", "max abs", "budget", "verdict", "isolates"):
        assert heading in lines[0]
    assert "A predicted" not in done.stdout and "B predicted: holds (1 of 1 row)" in lines[-1]
    assert lines[3].split("  ")[0] == "B" and PREDICTED in lines[3] and "100 dB" in lines[3]


def test_out_gets_json_page_and_picture(linear: Case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    linear.asked("--out", out)
    assert json.loads((out / "triple.json").read_text())["schema"] == "mlx-sentis/triple/1"
    page = (out / "triple.md").read_text()
    assert (
        "![agreement of each edge](triple.png)" in page and "| A∘B | original ↔ Sentis | f | predicted (2.6) |" in page
    )
    assert "never where this was written" in page  # a budget says what it rests on
    assert (out / "triple.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words",
    [
        ["--edge", "b", "--model", "m.onnx"],
        ["--edge", "ab", "--model", "m.onnx", "--fixture", "f.npz", "--self-test"],
        ["--edge", "a", "--model", "m.onnx", "--fixture", "f.npz", "--sentis-dump", "d"],
        ["--edge", "all", "--sentis", "2.6", "run"],
    ],
)
def test_what_does_not_go_together_is_a_wrong_use(words: list[str]) -> None:
    assert call("parity", *words).exit_code == 2


def test_edge_b_needs_no_outputs_of_the_original_and_the_others_say_so(linear: Case) -> None:
    with_outputs = linear.asked(edge="b")
    np.savez(linear.fixture, **{"in::x": linear.inputs["x"]})  # pyright: ignore[reportArgumentType]
    assert linear.asked(edge="b")["rows"] == with_outputs["rows"]
    measured = linear.asked("--sentis-dump", linear.dump(), edge="b")
    assert (
        rows(measured)["B"] == ("pass", "measured (2.6.0, CPU, 2026-12-01)") and measured["emulator"]["compared"] == 2
    )
    missing = call("parity", "--model", linear.model, "--fixture", linear.fixture, "--edge", "ab")
    assert missing.exit_code == 1 and "wanted in::<input> and out::<output>" in missing.stderr
    assert "--edge b alone needs no outputs" in missing.stderr


def test_a_miss_at_edge_b_is_looked_for_without_outputs_of_the_original(case: Callable[..., Case]) -> None:
    text = '<ir_version: 10, opset_import: ["": 18]> one (float[3] x) => (float[3] y) { y = Sum(x) }'
    one = case(text, {"x": np.ones(3, np.float32)})
    np.savez(one.fixture, **{"in::x": one.inputs["x"]})  # pyright: ignore[reportArgumentType]
    document = one.asked(edge="b", code=3)
    assert "first at Sum" in next(step["found"] for step in document["steps"] if step["number"] == "2")


def test_notes_say_which_layers_unity_shows_instead_of_which_nodes(case: Callable[..., Case]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    norm (float[2, 4] x) => (float[2, 4] y) {
        p = Pow(x, two)  m = ReduceMean(p, last)  a = Add(m, eps)  s = Sqrt(a)  q = Div(unit, s)  n = Mul(x, q)
        t = Mul(scale, n)  u = Sigmoid(t)  v = Mul(t, u)  y = Div(v, three)
    }"""
    scalars = {name: np.float32(value) for name, value in (("two", 2), ("eps", 1e-5), ("unit", 1), ("three", 3))}
    held = {name: np.asarray(value) for name, value in scalars.items()}
    one = case(text, {"x": np.ones((2, 4), np.float32)}, last=np.asarray([-1]), scale=np.ones(4, np.float32), **held)
    assert one.asked(edge="b")["facts"]["notes"] == [
        "RMSNormalization (1 place): Sentis makes this one layer of 7 ONNX nodes "
        "(Pow, ReduceMean, Add, Sqrt, Div, Mul, Mul) and computes x / √(mean(x²) + ε)·scale; "
        "its last digits may differ",
        "Swish (1 place): Sentis makes this one layer of 2 ONNX nodes (Sigmoid, Mul) and computes v / (1 + exp(−v)); "
        "its last digits may differ",
        "Div (1 place): Sentis computes x / c as x·(1/c); its last digits may differ",
    ]
