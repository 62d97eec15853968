"""The preview of a run and of one graph, through the public command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, edit_json
from sentis_dumps import write_graph

from parity.emulator import predict
from parity.emulator.quantise import uint8_of
from parity.emulator.selection import selection
from parity.evaluate import evaluate_run, held_out_rows
from parity.fixtures import read_fixture
from parity.quantisation.preview import Kind, recorded_answers, replaced_weights
from parity.runners.decoder_io import empty_cache, prefill_inputs
from parity.runners.onnx_decoder import OnnxDecoder
from parity.triple.of_run import fixtures_of
from parity.verify import integrity
from weights_bridge.files import read_json, read_jsonl, write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

IDS = [5, 9, 2]


def _prompt(toy: Any) -> dict[str, np.ndarray]:
    return prefill_inputs(IDS, 0, toy.contract) | empty_cache(toy.contract)


def asked(target: Path, *words: object, code: int = 0) -> dict[str, Any]:
    done = call("quantise", target, "--json", "-q", *words)
    assert done.exit_code == code, (done.exit_code, done.output, done.stderr)
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def previewed(measured_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, Any]]:
    run = RunFolder(tmp_path_factory.mktemp("previewed") / "run")
    shutil.copytree(measured_run, run.root)
    evaluate_run(run, Settings(), quiet=True)
    done = call("quantise", run.root, "--json", "-q")
    assert done.exit_code in (0, 3), done.output
    return run, json.loads(done.stdout)


def test_all_three_are_measured_side_by_side_written_and_recorded(
    previewed: tuple[RunFolder, dict[str, Any]],
) -> None:
    run, document = previewed
    rows = read_jsonl(run.path("data", "holdout.jsonl"))
    assert list(document["kinds"]) == ["float16", "uint8"] and document["rows"] == len(rows)
    sizes = [document["fp32_bytes"], *(one["stored_bytes"] for one in document["kinds"].values())]
    elements = document["chosen"]["elements"]
    assert [size - sizes[2] for size in sizes] == [3 * elements, elements, 0]
    half, eighth = document["kinds"].values()
    assert half["worst"]["psnr_db"] > eighth["worst"]["psnr_db"] + 20
    assert half["worst_truncated"]["psnr_db"] < half["worst"]["psnr_db"]
    for one in (half, eighth):
        assert one["task"]["before"] == read_json(run.path("eval", "axes.json"))["after"]  # fp32 is what eval measured
        assert set(one["task"]["verdicts"]) == set(one["task"]["before"])
        texts = [(row["before"]["text"], row["after"]["text"]) for row in one["task"]["rows"]]
        assert one["changed"] == sum(before != after for before, after in texts) and len(texts) == len(rows)
    assert set(run.manifest()["stages"]["quantise"]["outputs"]) == {"parity/quantise.json", "parity/quantise.md"}
    assert integrity(run) == []


def test_the_page_and_the_table_name_the_choice_and_what_they_rest_on(
    previewed: tuple[RunFolder, dict[str, Any]],
) -> None:
    run, document = previewed
    page = run.path("parity", "quantise.md").read_text()
    assert "|  | fp32 | Float16 | Uint8 |" in page and "| answers that change |" in page
    assert "Choice: " in page and "fine-tune first" in page
    assert "not verified for 2.6" in page and "nearest even is assumed" in page
    assert document["choice"]["steps"][0].startswith("1. fine-tune first: these are no tuned weights")  # no train stage


def test_answers_of_eval_are_taken_only_where_they_are_of_these_files_and_rows(
    previewed: tuple[RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(previewed[0].root, run.root)
    rows = held_out_rows(run, 0)
    taken = recorded_answers(run, rows)
    assert taken is not None and len(taken.answered) == len(rows)
    assert recorded_answers(run, [*rows, rows[0] | {"id": "new"}]) is None
    edit_json(run.path("manifest.json"), lambda m: m["stages"]["eval"]["inputs"].update({"onnx/model.onnx": "0" * 64}))
    assert recorded_answers(run, rows) is None
    edit_json(run.path("eval", "axes.json"), lambda document: document.update(runner="mlx"))
    assert recorded_answers(run, rows) is None


def test_onnx_runtime_answers_with_the_stored_numbers(measured_run: Path) -> None:
    run = RunFolder(measured_run)
    onnx, contract = run.path("onnx", "model.onnx"), read_json(run.path("onnx", "contract.json"))
    numbers, why = replaced_weights(onnx, selection(onnx), Kind("uint8", 0))
    assert numbers is not None and not why
    ids = read_fixture(next(iter(fixtures_of(run).values())))[0]["input_ids"][0].tolist()
    found = OnnxDecoder(onnx, contract, other_numbers=numbers).forward(ids)["logits"]
    inputs = prefill_inputs(ids, 0, contract) | empty_cache(contract)
    emulated = predict(onnx, inputs, quantise="uint8").outputs["logits"]
    plain = OnnxDecoder(onnx, contract).forward(ids)["logits"]
    assert np.abs(found - emulated).max() < 1e-3 * np.abs(found - plain).max()
    embedding = next(name for name in numbers.values if "embed" in name)
    assert len(np.unique(numbers.values[embedding])) <= 256


def test_a_file_of_fp16_weights_loses_nothing_as_float16(exported: Any) -> None:
    toy = exported("llama", dtype="fp16")
    plain, half = (predict(toy.onnx, _prompt(toy), quantise=how).outputs["logits"] for how in (None, "float16"))
    np.testing.assert_array_equal(plain, half)


@pytest.mark.parametrize("how", ["uint8", "float16"])
def test_onnx_runtime_answers_with_the_stored_numbers_where_the_file_holds_fp16(exported: Any, how: str) -> None:
    toy = exported("llama", dtype="fp16")
    kind = Kind(how, 0)
    numbers, why = replaced_weights(toy.onnx, selection(toy.onnx), kind)
    assert numbers is not None and not why and not kind.notes  # none is rounded back to fp16
    plain = OnnxDecoder(toy.onnx, toy.contract).forward(IDS)["logits"]
    found = OnnxDecoder(toy.onnx, toy.contract, other_numbers=numbers).forward(IDS)["logits"]
    emulated = predict(toy.onnx, _prompt(toy), quantise=how).outputs["logits"]
    moved = np.abs(emulated - plain).max()
    assert moved > 0.01 if how == "uint8" else moved < 1e-5
    assert np.abs(found - emulated).max() < max(1e-3 * moved, 1e-5)


def test_a_limit_that_nothing_fits_is_a_missed_budget(measured_run: Path, tmp_path: Path) -> None:
    shutil.copytree(measured_run, tmp_path / "run")
    document = asked(tmp_path / "run", "--limit-mib", "0.01", "--no-task", code=3)
    assert not document["choice"]["acceptable"] and "the limit is 0.01 MiB" in document["choice"]["steps"][-1]
    assert document["task_why_not"] == "left out with --no-task" and document["rows"] == 0


@pytest.fixture
def graph(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(1)
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[2, 20] x) => (float[2, 30] y) { y = MatMul(x, w) }'
    w, x = rng.standard_normal((20, 30)).astype(np.float32), rng.standard_normal((2, 20)).astype(np.float32)
    model = write_graph(tmp_path / "m.onnx", text, w=w)
    np.savez(tmp_path / "f.npz", **{"in::x": x, "out::y": x @ w})
    return model, tmp_path / "f.npz"


def test_a_graph_and_a_fixture_need_no_run(graph: tuple[Path, Path]) -> None:
    model, fixture = graph
    document = asked(model, "--fixture", fixture, "--to", "uint8", "--limit-mib", "0.001")
    assert list(document["kinds"]) == ["uint8"] and document["choice"]["kind"] == "uint8"
    inputs, outputs = read_fixture(fixture)
    import onnx

    (w,) = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer]
    by_hand = np.abs(inputs["x"] @ uint8_of(w) - outputs["y"]).max()
    assert document["kinds"]["uint8"]["errors"][0]["max_abs"] == pytest.approx(by_hand, rel=1e-3)
    assert document["fp32_bytes"] == 4 * document["kinds"]["uint8"]["stored_bytes"] == 2400


def test_a_quantised_model_is_refused_with_the_reason(tmp_path: Path, graph: tuple[Path, Path]) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[2, 3] x) => (float[2, 3] y) {
        q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }"""
    model = write_graph(tmp_path / "q.onnx", text)
    done = call("quantise", model, "--fixture", graph[1])
    assert done.exit_code == 1
    assert "2 quantised operators" in done.stderr and "ModelQuantizer" in done.stderr


def test_held_out_rows_of_free_text_leave_the_prediction(measured_run: Path, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(measured_run, tmp_path / "run", symlinks=True)))
    path = run.path("data", "holdout.jsonl")
    write_jsonl(path, [row | {"expect": None} for row in read_jsonl(path)])
    document = asked(run.root, "--to", "float16")
    assert document["task_why_not"] == "no held-out row says which call is right (free text has no score)"
    assert document["rows"] == 0 and document["kinds"]["float16"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["m.onnx"], 2, "give --fixture"),
        (["m.onnx", "--fixture", "f.npz", "--to", "int8"], 2, "ModelQuantizer has no Int8"),
        (["m.onnx", "--fixture", "f.npz", "--to", "awq"], 2, "AWQ writes 4-bit weights"),
        (["gone.onnx", "--fixture", "f.npz"], 1, "gone.onnx"),
        (["gone"], 1, "not a run folder"),
    ],
)
def test_what_cannot_be_asked_says_why(
    graph: tuple[Path, Path], words: list[str], code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(graph[0].parent)
    done = call("quantise", *words)
    assert (done.exit_code, told in done.stderr) == (code, True), done.stderr
