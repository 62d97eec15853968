"""The gates bite: each bug is planted in a copy of a finished run and found through the public command.

Every test first sees the unaltered run pass the same check, so that none can pass for the wrong reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from helpers import call, edit_json
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

Alter = Callable[[Callable[[Path], object]], Path]
Results = list[dict[str, Any]]


def failures(result: Result) -> Results:
    """Return the failed results of `parity --json`, of all gates."""
    gates = json.loads(result.stdout)["gates"]
    return [{"gate": gate["gate"]} | row for gate in gates for row in gate["results"] if not row["passed"]]


@pytest.fixture(scope="module")
def clean_a0(toy_run: Path, children_here: None) -> Result:
    """Gate A0 measured again on the unaltered run."""
    return call("parity", toy_run, "--edge", "a0", "--json")


@pytest.fixture(scope="module")
def clean_a(toy_run: Path) -> Result:
    """Edge A measured again on the unaltered run."""
    return call("parity", toy_run, "--edge", "a", "--json")


def found(result: Result, clean: Result) -> Results:
    """Require that the clean run passes and the altered one exits 3; return the failures."""
    assert clean.exit_code == 0, clean.output[-2000:]
    assert result.exit_code == 3, result.output[-2000:]
    return failures(result)


def weights(run: Path) -> Path:
    return run / "merged" / "model.safetensors"


def change_weights(run: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(weights(run))
    change(tensors)
    save_file(tensors, weights(run), metadata={"format": "pt"})


def test_a_wrong_rotary_base_is_named_and_begins_in_layer_0(altered_run: Alter, clean_a0: Result) -> None:
    def plant(run: Path) -> None:
        def change(config: dict[str, Any]) -> None:
            config["rope_theta"] = config["rope_parameters"]["rope_theta"] = 10000.0

        edit_json(run / "merged" / "config.json", change)

    run = altered_run(plant)
    result = call("parity", run, "--edge", "a0", "--json")
    rows = found(result, clean_a0)
    config = next(row for row in rows if row["tensor"] == "merged config rope_theta")
    assert "found 10000.0, wanted 50000.0" in config["detail"]
    logits = next(row for row in rows if row["tensor"] == "forward row 0 logits")
    assert (logits["reason"], logits["where"]) == ("below budget", "layer 0")
    assert logits["psnr_db"] < 60
    begin = next(row for row in rows if row["tensor"] == "forward begins")
    assert begin["where"] == "layer 0" and "fed with torch's activations" in begin["detail"]
    gate = json.loads(result.stdout)["gates"][-1]
    alone = gate["facts"]["each_layer_alone"]["forward row 0"]
    assert max(alone["layer 0"], alone["layer 1"]) < 100 < alone["head"]  # the base is wrong in every layer
    assert (run / "parity" / "plots" / "a0-miss.png").stat().st_size > 1000


def test_a_label_mask_shifted_by_one_names_row_and_token(altered_run: Alter, clean_a0: Result) -> None:
    def plant(run: Path) -> None:
        path = run / "data" / "train.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()
        row = json.loads(lines[3])
        row["trained"] = [[start - 1, end - 1] for start, end in row["trained"]]
        lines[3] = json.dumps(row, ensure_ascii=False)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    rows = found(call("parity", altered_run(plant), "--edge", "a0", "--json"), clean_a0)
    masks = [row for row in rows if "trained" in row["tensor"]]
    assert len(masks) == 1
    assert "train-0004" in masks[0]["tensor"] + masks[0]["where"]
    assert "token" in masks[0]["detail"]


@pytest.mark.slow
def test_swapped_query_and_key_heads_name_tensor_and_layer(altered_run: Alter, clean_a0: Result) -> None:
    def plant(run: Path) -> None:
        def change(tensors: dict[str, np.ndarray]) -> None:
            q, k = (tensors[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qk")
            kept = k.copy()  # k is as wide as the first half of q's heads
            k[:] = q[: len(k)]
            q[: len(k)] = kept

        change_weights(run, change)

    rows = found(call("parity", altered_run(plant), "--edge", "a0", "--json"), clean_a0)
    named = {row["where"] for row in rows if row["tensor"].startswith("merged ")}
    assert named == {f"model.layers.1.self_attn.{part}_proj.weight" for part in "qk"}
    logits = next(row for row in rows if row["tensor"] == "forward row 0 logits")
    assert (logits["reason"], logits["where"]) == ("below budget", "layer 1")


@pytest.mark.slow  # at toy size and without processes: tests/parity/test_mutations.py
def test_a_dropped_adapter_names_the_first_layer_and_every_tensor(
    altered_run: Alter, toy_run: Path, clean_a0: Result
) -> None:
    base = Path(json.loads((toy_run / "recipe.json").read_text(encoding="utf-8"))["model"]["path"])

    def plant(run: Path) -> None:
        weights(run).write_bytes((base / "model.safetensors").read_bytes())

    rows = found(call("parity", altered_run(plant), "--edge", "a0", "--json"), clean_a0)
    assert sum(row["tensor"].startswith("merged model.layers.") for row in rows) == 14
    logits = next(row for row in rows if row["tensor"] == "forward row 0 logits")
    assert (logits["reason"], logits["where"]) == ("below budget", "layer 0")


def test_an_altered_template_byte_names_the_field_and_the_byte(altered_run: Alter, clean_a0: Result) -> None:
    def plant(run: Path) -> None:
        path = run / "merged" / "chat_template.jinja"
        path.write_text(path.read_text(encoding="utf-8").replace("assistant\n", "assistant "))

    rows = found(call("parity", altered_run(plant), "--edge", "a0", "--json"), clean_a0)
    named = {row["tensor"] for row in rows}
    assert any("template_sha256" in name for name in named)
    rendered = next(row for row in rows if row["tensor"].endswith("rendered"))
    assert rendered["reason"] == "altered"
    assert "byte" in rendered["detail"]


@pytest.mark.slow
def test_the_self_test_catches_every_bug_that_this_run_can_have(toy_run: Path) -> None:
    before = {path: path.read_bytes() for path in toy_run.rglob("*") if path.is_file()}
    result = call("parity", toy_run, "--self-test", "--json")
    assert result.exit_code == 0, result.output[-2000:]
    document = json.loads(result.stdout)
    trials = {trial["bug"]: trial for trial in document["trials"]}
    assert document["passed"] and sum(trial["caught"] is True for trial in trials.values()) >= 20
    assert [trial["bug"] for trial in trials.values() if trial["caught"] is False] == []
    assert trials["rotary base"]["found"] == "layer 1"
    assert trials["bias left out"] == {
        "bug": "bias left out",
        "caught": None,
        "wanted": "",
        "found": "",
        "detail": "no biases",
    }
    assert {path: path.read_bytes() for path in toy_run.rglob("*") if path.is_file()} == before


def test_a_gate_that_has_gone_blind_is_exit_3_and_names_what_it_missed(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parity import self_test

    monkeypatch.setattr(self_test, "numeric_trials", lambda asked: [])
    assert call("parity", toy_run, "--self-test").exit_code == 0
    monkeypatch.setattr(self_test, "bridge_results", lambda *places: [])
    result = call("parity", toy_run, "--self-test")
    assert result.exit_code == 3
    assert "MISSED" in result.stdout and "epsilon of the norms doubled" in result.stderr
    assert "2 planted bugs not caught" in result.stderr


def initialiser(model: onnx.ModelProto, ending: str) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name.endswith(ending))


def test_a_head_swapped_inside_the_graph_names_its_layer(altered_run: Alter, clean_a: Result) -> None:
    def plant(run: Path) -> None:
        model = onnx.load(str(run / "onnx" / "model.onnx"))
        tensor = initialiser(model, "layers.1.self_attn.k_proj.weight")
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(np.roll(array, 16, axis=1)), tensor.name))
        onnx.save(model, str(run / "onnx" / "model.onnx"))

    rows = found(call("parity", altered_run(plant), "--edge", "a", "--json"), clean_a)
    assert any(row["reason"] == "altered" and row["where"] == "onnx/model.onnx" for row in rows)
    measured = [row for row in rows if row["reason"] == "below budget"]
    assert measured and "layer 1" in measured[0]["where"]


def test_swap_refuses_weights_that_gate_a0_has_not_passed(altered_run: Alter, toy_run: Path) -> None:
    def plant(run: Path) -> None:
        change_weights(run, lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"] * 1.01}))

    run = altered_run(plant)
    result = call("swap", run)
    assert result.exit_code == 3
    assert "gate A0 has not passed for these weights" in result.output
    assert "model.safetensors" in result.output
    (run / "parity" / "a0.json").unlink()
    assert call("swap", run).exit_code == 3


def test_cut_weights_are_a_failed_result_of_their_own_and_no_traceback(altered_run: Alter, clean_a: Result) -> None:
    def plant(run: Path) -> None:
        weights(run).write_bytes(weights(run).read_bytes()[:3000])

    rows = found(call("parity", altered_run(plant), "--json"), clean_a)
    assert any(row["reason"] == "altered" and row["where"] == "merged/model.safetensors" for row in rows)
    assert sum("not a whole safetensors file" in row["detail"] for row in rows) >= 2  # A0 and edge A


def test_swap_refuses_a_verdict_that_was_edited(altered_run: Alter) -> None:
    def plant(run: Path) -> None:
        edit_json(run / "parity" / "a0.json", lambda report: report["facts"].update(note="edited"))

    result = call("swap", altered_run(plant), "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert (answer["schema"], answer["exit_code"]) == ("mlx-sentis/error/1", 3)
    assert "parity/a0.json changed since" in answer["error"]


def test_an_unknown_checkpoint_lists_the_known_ones(toy_run: Path) -> None:
    result = call("bridge", toy_run, "--checkpoint", "77")
    assert result.exit_code == 1
    assert "best, last" in result.stderr
