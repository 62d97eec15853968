"""Kits of base weights: of a run that was not trained, and of a folder that `export` wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import Exported
from helpers import call, edit_json
from unity_engine import Engine
from unity_kit import Built, build_kit, said_by
from unity_loop import Loop, faults_of

from converters.unity.base import ends_of_model
from converters.unity.made_inputs import made_inputs
from converters.unity.model import GraphContract
from parity.runners.decoder_io import prefill_inputs
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of, write_json
from weights_bridge.run_folder import RunFolder

STOPS = [3, 5]


def asked(folder: Path, out: Path, *words: object, code: int = 0) -> dict[str, Any]:
    done = call("unity", folder, "--out", out, "--namespace", "MyGame.Npc", "--json", "-q", *words)
    assert done.exit_code == code, (done.output, done.stderr)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def exported_folder(tmp_path_factory: pytest.TempPathFactory, exported: Callable[..., Exported]) -> tuple[Path, Path]:
    """What `export` wrote of a decoder with sliding layers, and the model's directory with stop ids of its own."""
    toy, folder = exported("gemma3_text"), tmp_path_factory.mktemp("exported")
    (folder / "onnx").mkdir()
    for file in (toy.onnx, toy.onnx.with_name("contract.json")):
        shutil.copy(file, folder / "onnx")
    shutil.copytree(toy.model, folder / "model")
    write_json(folder / "model" / "generation_config.json", {"eos_token_id": STOPS, "pad_token_id": 0})
    return folder / "onnx", folder / "model"


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, exported_folder: tuple[Path, Path], stubs: Path
) -> tuple[Path, Built, dict[str, Any]]:
    """A project with the kit of an exported folder, its assemblies, and what the command said."""
    folder = tmp_path_factory.mktemp("project")
    said = asked(exported_folder[0], folder / "Assets" / "Npc", "--model", exported_folder[1], "--ungated")
    return folder, build_kit(folder / "Assets" / "Npc", stubs, folder / "built", "MyGame.Npc"), said


def prompts_for(contract: dict[str, Any]) -> list[list[int]]:
    window, numbers = contract["constants"]["sliding_window"], np.random.default_rng(5)
    return [numbers.integers(10, 200, size).tolist() for size in (window - 2, 2 * window + 3)]


@pytest.mark.parametrize("backend", ["CPU", "GPUCompute"])
def test_the_loop_answers_with_the_exported_graph_and_the_models_stop_ids(
    project: tuple[Path, Built, dict[str, Any]], exported_folder: tuple[Path, Path], backend: str
) -> None:
    onnx = exported_folder[0] / "base.onnx"
    reference = OnnxDecoder(onnx, read_json(onnx.with_name("contract.json")), threads=1)
    loop = Loop(project[1].program("Loop"), project[0])
    assert faults_of(loop, reference, prompts_for(dict(reference.contract)), STOPS, backend) == []
    constants = (project[0] / "Assets/Npc/Runtime/ModelConstants.cs").read_text(encoding="utf-8")
    assert "{\n            3, 5\n        }" in constants and "PaddingValue = 0;" in constants


def test_the_harness_is_made_the_inputs_that_the_reference_would_feed(exported_folder: tuple[Path, Path]) -> None:
    path = exported_folder[0] / "contract.json"
    contract, made = read_json(path), made_inputs(GraphContract(path))
    assert made["made-prompt"]["input_ids"].size > contract["constants"]["sliding_window"]
    for name, past in (("made-prompt", 0), ("made-step", made["made-prompt"]["input_ids"].size)):
        wanted = prefill_inputs(made[name]["input_ids"][0].tolist(), past, contract)
        for key, array in wanted.items():
            np.testing.assert_array_equal(made[name][key], array)
            assert made[name][key].dtype == array.dtype
        caches = {key: array.shape[2] for key, array in made[name].items() if key not in wanted}
        assert set(caches.values()) == {past} and len(caches) == 2 * contract["constants"]["layers"]


def test_it_has_no_prompt_no_gate_and_no_words_about_them(project: tuple[Path, Built, dict[str, Any]]) -> None:
    folder, _, said = project
    assert (said["run"], said["base"], said["gate"], said["contract_sha256"]) == (None, True, False, None)
    kit = folder / "Assets" / "Npc"
    found = {file.relative_to(kit).as_posix() for file in kit.rglob("*") if file.is_file()}
    assert found == set(said["files"])
    for name in ("PromptBuilder.cs", "PromptContract.cs", "CallGate.cs", "ToolCall.cs", "TokenizerCheck.cs"):
        assert not [one for one in found if one.endswith(name)], name
    page = (kit / "README.md").read_text(encoding="utf-8")
    assert "a base model for Unity Sentis" in page and "There is no prompt builder" in page
    assert "tokenizer.Encode(text)" in page and "| prompt builder" not in page and "$" not in page


def test_its_tests_pass_and_find_another_model(project: tuple[Path, Built, dict[str, Any]]) -> None:
    program, model = project[1].program("Files"), project[0] / "Assets/Npc/Model/model.onnx"
    assert said_by(program) == ["passed TheModelIsTheOneThatWasMeasured"]
    whole = model.read_bytes()
    try:
        model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert said_by(program)[0].startswith("failed TheModelIsTheOneThatWasMeasured")
    finally:
        model.write_bytes(whole)


def test_what_the_harness_measures_on_made_inputs_is_read_back(
    project: tuple[Path, Built, dict[str, Any]], tmp_path: Path
) -> None:
    folder, built, _ = project
    command = ["mono", built.program("Harness"), "-mlxSentisDump", tmp_path / "dump", "-mlxSentisRuns", 1]
    code, lines = Engine().ran(command, folder)
    assert code == 0, lines
    kit = folder / "Assets" / "Npc"
    for name in ("made-prompt", "made-step"):
        words = ["--model", kit / "Model/model.onnx", "--fixture", kit / f"Parity~/{name}.npz", "--edge", "b"]
        done = call("parity", *words, "--sentis-dump", tmp_path / "dump", "--json", "-q")
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["rows"][0]["sentis"].startswith("measured (2.6.1, CPU, ") and document["passed"]
        assert document["emulator"]["findings"] == []


def test_an_exported_folder_needs_its_model_and_the_word_that_nothing_was_measured(
    exported_folder: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, model = exported_folder
    without = call("unity", folder, "--out", tmp_path / "a")
    assert without.exit_code == 2 and "give --model MODEL" in without.stderr
    ungated = call("unity", folder, "--out", tmp_path / "a", "--model", model)
    assert ungated.exit_code == 3 and "edge A was not measured" in ungated.stderr and "--base" in ungated.stderr
    shutil.copytree(folder, tmp_path / "other")
    edit_json(tmp_path / "other" / "contract.json", lambda c: c.update(topology_sha256="0" * 64))
    other = call("unity", tmp_path / "other", "--out", tmp_path / "a", "--model", model, "--ungated")
    assert other.exit_code == 1 and "found base.onnx, wanted the graph of contract.json" in other.stderr
    bare = tmp_path / "model"
    bare.mkdir()
    assert (
        "tokenizer.json: no such file"
        in call("unity", folder, "--out", tmp_path / "a", "--model", bare, "--ungated").stderr
    )
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("generation", "config", "stops"),
    [({"eos_token_id": 4}, {"eos_token_id": 9}, (4,)), (None, {"eos_token_id": [9, 8]}, (9, 8)), ({}, {}, None)],
)
def test_stop_ids_are_those_of_the_models_own_files(
    tmp_path: Path, generation: dict[str, Any] | None, config: dict[str, Any], stops: tuple[int, ...] | None
) -> None:
    write_json(tmp_path / "config.json", config)
    if generation is not None:
        write_json(tmp_path / "generation_config.json", generation)
    if stops is None:
        with pytest.raises(StageError, match="no eos_token_id"):
            ends_of_model(tmp_path)
    else:
        assert ends_of_model(tmp_path).stop_ids == stops


@pytest.fixture
def base_run(prepared: RunFolder, exported_folder: tuple[Path, Path], tmp_path: Path) -> RunFolder:
    """A prepared run whose export passed edge A, and that was not trained."""
    shutil.copytree(prepared.root, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    edit_json(run.path("recipe.json"), lambda recipe: recipe["model"].update(path=str(exported_folder[1])))
    with run.stage("recipe") as stage:
        stage.wrote(run.path("recipe.json"))
    with run.stage("export") as stage:
        shutil.copytree(exported_folder[0], run.path("onnx"))
        stage.wrote(run.path("onnx"))
    with run.stage("edge-a-base", [run.path("onnx", "base.onnx")]) as stage:
        write_json(run.path("parity", "a-base.json"), {"schema": "mlx-sentis/a/1", "gate": "a", "passed": True})
        stage.wrote(run.path("parity", "a-base.json"))
    return run


def test_a_prepared_run_brings_its_prompt_builder_with_the_base_weights(
    base_run: RunFolder, stubs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "project" / "Assets" / "Npc"
    said = asked(base_run.root, out, "--base")
    assert said["model_sha256"] == sha256_of(base_run.path("onnx", "base.onnx")) and said["contract_sha256"]
    assert base_run.manifest()["stages"]["unity"]["facts"]["base"] is True
    built = build_kit(out, stubs, tmp_path / "built", "MyGame.Npc")
    lines = said_by(built.program("Tests"))
    assert len(lines) > 8 and all(line.startswith("passed ") for line in lines)
    reference = OnnxDecoder(base_run.path("onnx", "base.onnx"), read_json(base_run.path("onnx", "contract.json")))
    stops = read_json(base_run.path("prompt_contract.json"))["stop_ids"]
    loop = Loop(built.program("Loop"), tmp_path / "project")
    assert faults_of(loop, reference, prompts_for(dict(reference.contract))[:1], stops, "CPU") == []


def test_a_run_that_was_only_exported_takes_stop_ids_from_its_recipe(base_run: RunFolder, tmp_path: Path) -> None:
    base_run.path("prompt_contract.json").unlink()
    edit_json(base_run.path("recipe.json"), lambda recipe: recipe.update(stop_ids=[6]))
    with base_run.stage("recipe") as stage:
        stage.wrote(base_run.path("recipe.json"))
    said = asked(base_run.root, tmp_path / "Npc", "--base")
    assert said["contract_sha256"] is None
    constants = (tmp_path / "Npc/Runtime/ModelConstants.cs").read_text(encoding="utf-8")
    assert "StopIds = new int[]\n        {\n            6\n        };" in constants


def test_base_weights_need_their_own_edge_a(base_run: RunFolder, tmp_path: Path) -> None:
    edit_json(base_run.path("parity", "a-base.json"), lambda report: report.update(passed=False))
    missed = call("unity", base_run.root, "--out", tmp_path / "Npc", "--base")
    assert missed.exit_code == 3 and "a-base.json says it failed" in missed.stderr
    base_run.path("parity", "a-base.json").unlink()
    assert "a-base.json is not there" in call("unity", base_run.root, "--out", tmp_path / "Npc", "--base").stderr
    unfinished = call("unity", base_run.root, "--out", tmp_path / "Npc")
    assert unfinished.exit_code == 1 and "--base takes the base weights" in unfinished.stderr
    both = call("unity", base_run.root, "--out", tmp_path / "Npc", "--base", "--prompt-only")
    assert both.exit_code == 2 and "leave one of the two" in both.stderr
    wrong = call("unity", base_run.root, "--out", tmp_path / "Npc", "--model", tmp_path)
    assert wrong.exit_code == 2 and not (tmp_path / "Npc").exists()
