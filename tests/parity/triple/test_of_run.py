"""The table of a run folder: written, recorded, and kept when a file is altered."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call, edit_json
from sentis_dumps import edit_dump, write_dump
from triple_cases import ort, steps

from parity.fixtures import read_fixture
from parity.triple.of_run import fixtures_of
from parity.verify import integrity
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings


@pytest.fixture
def run(measured_run: Path, tmp_path: Path) -> RunFolder:
    shutil.copytree(measured_run, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def asked(run: RunFolder, *words: object, code: int = 0) -> dict[str, Any]:
    done = call("parity", run.root, "--edge", "ab", "--json", "-q", *words)
    assert done.exit_code == code, (done.exit_code, done.output, done.stderr)
    return json.loads(done.stdout)


def dumped(run: RunFolder, folder: Path, **given: Any) -> Path:
    model = run.path("onnx", "model.onnx")
    read = {name: read_fixture(path)[0] for name, path in fixtures_of(run).items()}
    return write_dump(folder, model, {name: (inputs, ort(model, inputs)) for name, inputs in read.items()}, **given)


def test_a_run_is_predicted_on_all_its_fixtures_written_and_recorded(run: RunFolder) -> None:
    document = asked(run)
    names = list(fixtures_of(run))
    assert [(row["edge"], row["fixture"]) for row in document["rows"]] == [
        (edge, name) for edge in ("A", "B", "A∘B") for name in names
    ]
    assert document["passed"]
    assert {row["sentis"] for row in document["rows"] if row["edge"] != "A"} == {"predicted (2.6)"}
    entry = run.manifest()["stages"]["parity-b"]
    assert set(entry["outputs"]) == {"parity/triple.json", "parity/triple.md", "parity/plots/triple.png"}
    assert entry["facts"]["sentis"] == {"sentis": "2.6", "source": "predicted", "passed": True}
    assert integrity(run) == []
    assert "# toy: triple parity" in run.path("parity", "triple.md").read_text()


def test_a_dump_of_the_whole_run_is_measured_and_a_fixture_too_many_is_named(run: RunFolder, tmp_path: Path) -> None:
    dump = dumped(run, tmp_path / "dump")
    document = asked(run, "--sentis-dump", dump)
    assert {row["sentis"] for row in document["rows"] if row["edge"] != "A"} == {"measured (2.6.0, CPU, 2026-12-01)"}
    assert document["emulator"]["compared"] > 0 and document["emulator"]["findings"] == []

    def one_more(document: dict[str, Any]) -> None:
        runs = document["models"][0]["runs"]
        runs.append(runs[0] | {"fixture": "other", "fixture_sha256": "1" * 64})

    edit_dump(dump, one_more)
    document = asked(run, "--sentis-dump", dump, code=3)
    assert [(fault["reason"], fault["where"]) for fault in document["faults"]] == [("extra", "other")]
    edit_dump(dump, lambda document: document["models"][0]["runs"].__delitem__(slice(0, 1)))
    document = asked(run, "--sentis-dump", dump, code=3)
    assert {row["reason"] for row in document["rows"] if row["verdict"] == "FAIL"} == {"not recorded"}


def test_an_altered_graph_is_told_measured_all_the_same_and_the_old_table_is_kept(
    run: RunFolder, swap_heads: Callable[..., None]
) -> None:
    asked(run)
    kept = run.path("parity", "triple.json").read_bytes()
    graph = run.path("onnx", "model.onnx")
    swap_heads(graph, graph, "model.layers.1.self_attn.q_proj.weight")
    document = asked(run, code=3)
    assert [result["reason"] for result in document["integrity"]] == ["altered"]
    assert run.path("parity", "triple.json").read_bytes() == kept
    found = steps(document)
    assert found["1"].endswith("mend the export before Unity is opened")
    assert found["2"].startswith("layer 1 (self_attn.q_proj): ")  # the original is there, so the place is found
    assert [row["verdict"] for row in document["rows"] if row["edge"] == "B"] == ["pass"] * len(fixtures_of(run))


def test_a_miss_that_the_base_graph_has_too_is_of_the_structure(run: RunFolder, tmp_path: Path) -> None:
    import onnx

    for name in ("base.onnx", "model.onnx"):  # Sum of one input: doubled by Sentis, in both graphs
        model = onnx.load(run.path("onnx", name))
        node = next(node for node in model.graph.node if node.op_type == "Sigmoid")
        target = node.output[0]
        node.output[0] = f"{target}:before"
        at = list(model.graph.node).index(node)
        model.graph.node.insert(at + 1, onnx.helper.make_node("Sum", [node.output[0]], [target]))
        onnx.save(model, run.path("onnx", name))
    document = asked(run, code=3)
    assert steps(document)["4"].startswith("predicted to miss as well (first at Sum")


def test_what_is_not_there_yet_is_named(run: RunFolder) -> None:
    run.path("onnx", "fixtures", "index.json").unlink()
    done = call("parity", run.root, "--edge", "b")
    assert done.exit_code == 1 and "no fixtures yet" in done.stderr


@pytest.mark.parametrize(
    "name, said",
    [("fixtures/index.json", "not an index of fixtures"), ("contract.json", "found list, wanted an object")],
)
@pytest.mark.parametrize("words", [("parity", "--edge", "ab"), ("quantise", "--no-task")])
def test_records_of_another_form_are_one_line(run: RunFolder, name: str, said: str, words: tuple[str, ...]) -> None:
    run.path("onnx", *name.split("/")).write_text("[]")
    done = call(words[0], run.root, *words[1:])
    assert done.exit_code == 1 and said in done.stderr and "Traceback" not in done.output


def test_the_report_takes_the_table_up(run: RunFolder) -> None:
    from parity.report import verdict_rows, write_report

    assert ("edge B, ONNX Runtime ↔ Sentis", "not run") in [row[:2] for row in verdict_rows(write_report(run))]
    asked(run)
    rows = {row[0]: row[1:] for row in verdict_rows(write_report(run))}
    verdict, figure = rows["edge B, ONNX Runtime ↔ Sentis"]
    assert verdict == "pass" and "predicted (2.6)" in figure
    assert "edge_b" in read_json(run.path("parity", "report.json"))["not_measured"]  # a prediction is no measurement
    edit_json(run.path("parity", "triple.json"), lambda document: document.update(passed=False))
    with pytest.raises(StageError, match="changed since they were recorded"):
        write_report(run)


def test_a_table_of_another_graph_is_not_taken_up(run: RunFolder) -> None:
    from parity.report import write_report

    asked(run)
    graph = run.path("onnx", "model.onnx")
    with run.stage("swap") as stage:
        shutil.copyfile(run.path("onnx", "base.onnx"), graph)
        stage.wrote(graph)
    assert write_report(run)["edge_b"] == []


def test_as_a_stage_a_predicted_miss_ends_the_run_and_what_is_not_known_does_not(run: RunFolder) -> None:
    import onnx

    from parity.stages import edge_b

    told: list[str] = []
    settings = Settings()
    edge_b(run, settings, told.append)
    assert told[-1].startswith("A: holds") and "B predicted: holds" in told[-1]
    unknown = dataclasses.replace(settings, export=dataclasses.replace(settings.export, sentis="9.9"))
    edge_b(run, unknown, told.append)
    assert "B predicted: not predicted" in told[-1]
    graph = run.path("onnx", "model.onnx")
    with run.stage("fix") as stage:
        model = onnx.load(graph)
        node = next(node for node in model.graph.node if node.op_type == "Sigmoid")
        target, node.output[0] = node.output[0], "before"
        at = list(model.graph.node).index(node)
        model.graph.node.insert(at + 1, onnx.helper.make_node("Sum", ["before"], [target]))
        onnx.save(model, graph)
        stage.wrote(graph)
    with pytest.raises(BudgetMissedError, match=r"B predicted: misses on [\s\S]*first at Sum"):
        edge_b(run, settings, told.append)
