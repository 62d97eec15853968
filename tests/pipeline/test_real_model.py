"""The pipeline on real weights, and on the other architectures at toy size: every stage, every gate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import read_export
from helpers import call
from unity_engine import Engine
from unity_kit import Built, build_kit, build_stubs, require_mono

from converters.unity.kit import write_kit
from mlx_sentis.catalogue import get_model
from parity.fixtures import read_fixture
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.compare import psnr_db
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_dump import fixture_sha256

ROOT = Path(__file__).resolve().parents[2]


def all_cores() -> dict[str, str]:
    """Return the environment without the one OpenMP thread that the fast tests are held to."""
    return {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}


def run(root: Path, *settings: str) -> None:
    """Call `mlx-sentis run` in a process of its own with all cores."""
    flags = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "cli", "run", "--out", str(root), "--progress", "off", *flags]
    done = subprocess.run(command, cwd=ROOT, env=all_cores(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def gate(root: Path, name: str) -> dict[str, Any]:
    return json.loads((root / "parity" / name).read_text(encoding="utf-8"))


def worst(report: dict[str, Any], containing: str) -> float:
    levels = [r["psnr_db"] for r in report["results"] if containing in r["tensor"] and r["psnr_db"] is not None]
    return min(levels)


@pytest.fixture(scope="module")
def smollm2_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with one epoch: minutes."""
    root = tmp_path_factory.mktemp("runs") / "demo"
    run(root, "train.epochs=1")
    return root


@pytest.mark.slow
def test_smollm2s_export_is_small_light_and_equal_to_transformers(
    smollm2_run: Path, reference_logits: Callable[[Path, np.ndarray], np.ndarray]
) -> None:
    graph, model = smollm2_run / "onnx" / "base.onnx", get_model("smollm2-135m")
    size = graph.stat().st_size
    assert size < 540e6
    recorded = read_json(smollm2_run / "manifest.json")["stages"]["export"]
    assert recorded["peak_memory_gib"] < 3 * size / 2**30
    ids = np.random.default_rng(0).integers(0, 49152, (1, 160))
    found = read_export(model, graph.parent).logits(ids, [150, *[1] * 10])
    assert psnr_db(reference_logits(model, ids), found) > 100


@pytest.fixture(scope="module")
def smollm2_kit(smollm2_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    """A Unity project with the demo's kit in it, and the kit's assemblies."""
    require_mono()
    project, stubs = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("stubs")
    write_kit(RunFolder(smollm2_run), project / "Assets" / "Npc", "MyGame.Npc", link=True)
    build_stubs(stubs)
    return project, build_kit(project / "Assets" / "Npc", stubs, project / "built", "MyGame.Npc")


@pytest.mark.slow
@pytest.mark.parametrize(("how", "given_back"), [("wait", 0), ("poll", 3)])  # polled, the prompt's inputs go later
def test_smollm2s_loop_in_c_sharp_answers_as_the_runner_does_without_a_tensor_or_garbage_in_a_step(
    smollm2_run: Path, smollm2_kit: tuple[Path, Built], how: str, given_back: int
) -> None:
    project, built = smollm2_kit
    onnx = smollm2_run / "onnx"
    runner = OnnxDecoder(onnx / "model.onnx", read_json(onnx / "contract.json"))
    stops = read_json(smollm2_run / "prompt_contract.json")["stop_ids"]
    rows = read_jsonl(smollm2_run / "data" / "holdout.jsonl")[:2]
    prompts = [row["ids"][: row["prompt_tokens"]] for row in rows]
    words = ["mono", built.program("Loop"), "Assets/Npc/Model/model.onnx", "CPU", 320, 40, -1, how]
    code, said = Engine().ran([*words, *(",".join(map(str, prompt)) for prompt in prompts)], project)
    assert code == 0
    wanted = [",".join(map(str, runner.greedy(prompt, 40, stops).ids)) for prompt in prompts]
    *answers, left = said
    assert [answer.split()[:7] for answer in answers] == [
        ["answer", "0", str(-given_back), "0", "NaN", "done", ids] for ids in wanted
    ]
    assert left == "left 0 0"
    if how == "poll":
        assert {answer.split()[7] for answer in answers} == {"0"}  # nothing waited for the device


@pytest.mark.slow
def test_smollm2s_fixtures_go_through_the_harness(smollm2_run: Path, smollm2_kit: tuple[Path, Built]) -> None:
    project, built = smollm2_kit
    words = ["-mlxSentisDump", project / "dump", "-mlxSentisRuns", 1]
    code, said = Engine().ran(["mono", built.program("Harness"), *words], project)
    assert (code, said[-1]) == (0, "left 0 0")
    (model,) = read_json(project / "dump" / "dump.json")["models"]
    assert len(model["runs"]) >= 2
    for run in model["runs"]:
        inputs, outputs = read_fixture(smollm2_run / "onnx" / "fixtures" / f"{run['fixture']}.npz")
        assert run["fixture_sha256"] == fixture_sha256(inputs)
        for entry in run["outputs"]:
            found = np.fromfile(project / "dump" / entry["file"], np.float32).reshape(entry["shape"])
            assert psnr_db(outputs[entry["name"]], found) > 100, entry["name"]
    done = call("parity", smollm2_run, "--edge", "ab", "--sentis-dump", project / "dump", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    sides = {row["sentis"].partition(" (")[0] for row in document["rows"] if row["edge"] != "A"}
    assert sides == {"measured"} and document["emulator"]["findings"] == []


@pytest.mark.slow
def test_smollm2s_float16_weights_change_no_answer_and_uint8_is_the_coarser_one(smollm2_run: Path) -> None:
    done = call("quantise", smollm2_run, "--rows", 12, "--json", "-q")
    document = json.loads(done.stdout)
    half, eighth = document["kinds"]["float16"], document["kinds"]["uint8"]
    assert document["chosen"]["by_layer"] == {"Gather": 1, "MatMul": 210, "MatMul2D": 1}
    assert half["worst"]["psnr_db"] > 60 and 20 < eighth["worst"]["psnr_db"] < 50
    assert half["changed"] == 0 and half["regressed"] == []
    assert document["fp32_bytes"] / half["stored_bytes"] == pytest.approx(2, rel=1e-3)
    assert document["fp32_bytes"] / eighth["stored_bytes"] == pytest.approx(4, rel=1e-2)


@pytest.mark.slow
def test_smollm2_passes_every_gate_of_the_demo_after_one_epoch(smollm2_run: Path) -> None:
    root = smollm2_run
    a0 = gate(root, "a0.json")
    assert a0["passed"] and max(a0["facts"]["row_tokens"]) > 100
    assert worst(a0, "forward") >= 110
    assert worst(a0, "backward") >= 90
    for name in ("a-base.json", "a.json"):
        report = gate(root, name)
        greedy = [result for result in report["results"] if "greedy" in result["tensor"]]
        assert report["passed"] and len(greedy) >= 2 and all(result["passed"] for result in greedy)
    axes = json.loads((root / "eval" / "axes.json").read_text(encoding="utf-8"))
    assert axes["rows_scored"] == 100
    assert axes["verdicts"]["function_selection"]["word"] == "improved"
    assert axes["after"]["function_selection"]["share"] > 0.4  # the full three epochs reach more: `bench demo`
    assert (root / "parity" / "plots" / "loss.png").stat().st_size > 1000


@pytest.mark.slow
def test_smollm2s_training_stays_near_the_memory_that_was_estimated(smollm2_run: Path) -> None:
    """The estimate is told before the first update, the measured peak after the last one, in the run's own story."""
    facts = read_json(smollm2_run / "manifest.json")["stages"]["train"]["facts"]
    assert facts["estimate_gib"] == pytest.approx(facts["peak_gib"], rel=0.35)


@pytest.mark.slow
def test_smollm2s_training_resumes_to_the_bit_after_kills(smollm2_run: Path) -> None:
    words = ("--resume", "--prove", "--prove-updates", "4", "--json", "--progress", "off")
    command = [sys.executable, "-m", "cli", "train", "--data", str(smollm2_run), "--out", str(smollm2_run), *words]
    done = subprocess.run(command, cwd=ROOT, env=all_cores(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["passed"]
    assert [kill["place"] for kill in answer["kills"]] == ["inside", "while saving"]  # one micro-batch an update
    assert {one["differing"] for one in answer["compared"]} == {0}
    trained = next(one for one in answer["compared"] if one["what"] == "trained tensors")
    assert trained["count"] == 630  # A, B and magnitude of seven layers in thirty blocks


@pytest.mark.slow
def test_smollm2_is_predicted_to_compute_in_sentis_what_it_computes_in_onnx_runtime(smollm2_run: Path) -> None:
    from parity.runners.decoder_io import empty_cache, prefill_inputs
    from parity.runners.sentis import predicted_edge_b

    contract = read_json(smollm2_run / "onnx" / "contract.json")
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 49152, 64)]
    inputs = prefill_inputs(ids, 0, contract) | empty_cache(contract)
    edge = predicted_edge_b(smollm2_run / "onnx" / "model.onnx", inputs, 110)
    assert edge.prediction.verdict == "predicted" and not edge.prediction.deviations
    assert len(edge.results) == 61 and all(result.passed for result in edge.results)  # 134 dB at the logits


@pytest.mark.slow
@pytest.mark.parametrize("model", ["toy-qwen2", "toy-qwen3", "toy-gemma3"])
def test_each_architecture_passes_every_gate(model: str, small_data: Path, tmp_path: Path) -> None:
    root = tmp_path / model
    run(root, f"model.name={model}", f"data.source={small_data}", "train.epochs=2", "eval.rows=4")
    a0 = gate(root, "a0.json")
    assert a0["passed"] and gate(root, "a-base.json")["passed"] and gate(root, "a.json")["passed"]
    if model == "toy-gemma3":  # rows and loop must cross the window of 32
        assert max(a0["facts"]["row_tokens"]) > 32
