"""The kit of a finished run: its files, what it refuses, and that nothing of it is ever half there."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, call, edit_json
from unity_kit import build_kit, said_by

from converters.unity import requirements
from converters.unity.kit import write_kit
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import read_json, sha256_of, write_json
from weights_bridge.run_folder import RunFolder


@pytest.fixture
def run(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the finished run."""
    shutil.copytree(finished.root, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_command_writes_all_that_a_project_needs(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "Assets" / "Npc"
    found = call("unity", run.root, "--out", out, "--namespace", "MyGame.Npc", "--json")
    assert found.exit_code == 0, found.output
    document = read_json_text(found.stdout)
    written = files_of(out)
    assert sorted(written) == document["files"]
    assert document["model_sha256"] == sha256_of(run.path("onnx", "model.onnx")) == sha256_of(out / "Model/model.onnx")
    assert (document["fixtures"], document["gate"], document["ungated"]) == (2, True, False)
    assert written["Tokenizer/tokenizer.json"] == run.path("merged", "tokenizer.json").read_bytes()
    assert {"README.md", "Runtime/GreedyDecoder.cs", "Editor/ParityHarness.cs", "Parity~/fixtures.json"} <= set(written)
    for name, data in written.items():
        assert b"MlxSentis" not in data.replace(b"MlxSentisParity", b"") or not name.endswith((".cs", ".md")), name
    constants = written["Runtime/ModelConstants.cs"].decode()
    sizes = read_json(run.path("onnx", "contract.json"))["constants"]
    for field, key in (
        ("Layers", "layers"),
        ("KvHeads", "kv_heads"),
        ("HeadDim", "head_dim"),
        ("VocabularySize", "vocab"),
    ):
        assert f"int {field} = {sizes[key]};" in constants
    assert f"            0, {sizes['sliding_window']}\n" in constants  # the windows of both masks
    entry = run.manifest()["stages"]["unity"]
    assert entry["facts"]["files"] == document["files"]
    assert entry["inputs"]["onnx/model.onnx"] == document["model_sha256"]


def read_json_text(text: str) -> Any:
    import json

    return json.loads(text)


def test_the_files_tests_pass_and_find_another_model(project: Any, tmp_path: Path) -> None:
    program = project.built.program("Tests")
    said = said_by(program)
    assert "passed TheModelIsTheOneThatWasMeasured" in said
    assert [line for line in said if not line.startswith("passed ")] == []
    model = project.kit / "Model" / "model.onnx"
    whole = model.read_bytes()
    try:
        model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        (failed,) = [line for line in said_by(program) if line.startswith("failed ")]
    finally:
        model.write_bytes(whole)
    assert failed.startswith("failed TheModelIsTheOneThatWasMeasured: Model/model.onnx (SHA-256): byte 0: found ")


def test_with_the_tokenizer_of_a_newer_package_and_the_pages_own_code_it_compiles_as_well(
    project: Any, stubs: Path, tmp_path: Path
) -> None:
    kit = tmp_path / "kit"
    shutil.copytree(project.kit, kit)
    (sample,) = re.findall(r"```csharp\n(using .*?)```", (kit / "README.md").read_text(encoding="utf-8"), re.S)
    (kit / "Runtime" / "Talk.cs").write_text(sample.replace("[SerializeField] private", "public"), encoding="utf-8")
    built = build_kit(kit, stubs, tmp_path / "built", "MyGame.Npc", defines=["MLX_SENTIS_TOKENIZER"])
    # the test asks the package's reader
    assert "failed SentisTokenizerGivesTheTrainedIds: a stub" in said_by(built.program("Tests"))


def test_a_model_that_is_there_already_is_left_alone(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "Npc"
    write_kit(run, out)
    model = out / "Model" / "model.onnx"
    before = model.stat()
    assert before.st_ino != run.path("onnx", "model.onnx").stat().st_ino
    write_kit(run, out)
    assert (model.stat().st_ino, model.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    model.write_bytes(b"half")
    write_kit(run, out)
    assert sha256_of(model) == sha256_of(run.path("onnx", "model.onnx"))


@pytest.mark.parametrize("words", [("RUN",), ("--helper", "nms")])
def test_an_empty_namespace_is_a_wrong_use_and_not_the_kits_own(
    run: RunFolder, tmp_path: Path, words: tuple[str, ...]
) -> None:
    asked = [run.root if word == "RUN" else word for word in words]
    found = call("unity", *asked, "--out", tmp_path / "out", "--namespace", "")
    assert found.exit_code == 2 and "no C# name" in found.stderr and not (tmp_path / "out").exists()


def test_a_link_is_a_second_name_of_the_runs_model(run: RunFolder, tmp_path: Path) -> None:
    write_kit(run, tmp_path / "Npc", link=True)
    assert (tmp_path / "Npc/Model/model.onnx").samefile(run.path("onnx", "model.onnx"))
    assert not (tmp_path / "Npc/Tokenizer/tokenizer.json").samefile(run.path("merged", "tokenizer.json"))


@pytest.mark.parametrize("name", requirements.MADE_BY)
def test_an_unfinished_run_is_refused_with_the_stage_that_is_missing(run: RunFolder, tmp_path: Path, name: str) -> None:
    run.path(name).unlink()
    found = call("unity", run.root, "--out", tmp_path / "out")
    assert found.exit_code == 1
    assert f"  {name}: stage {requirements.MADE_BY[name]}\n" in found.stderr
    assert "--prompt-only" in found.stderr
    assert not (tmp_path / "out").exists()


def other_model(run: RunFolder) -> None:
    """Swap again: the verdict is of the model before."""
    with run.stage("swap") as stage:
        model = run.path("onnx", "model.onnx")
        model.write_bytes(model.read_bytes()[:-1])
        stage.wrote(model)


GATES: dict[str, tuple[Callable[[RunFolder], object], str]] = {
    "none": (lambda run: run.path("parity", "a.json").unlink(), "a.json is not there"),
    "missed": (lambda run: edit_json(run.path("parity", "a.json"), lambda d: d.update(passed=False)), "says it failed"),
    "of another model": (other_model, "was measured on another onnx/model.onnx"),
}


@pytest.mark.parametrize("name", GATES)
def test_a_model_that_has_not_passed_edge_a_is_refused(run: RunFolder, tmp_path: Path, name: str) -> None:
    change, wanted = GATES[name]
    change(run)
    found = call("unity", run.root, "--out", tmp_path / "out")
    assert found.exit_code == 3
    assert wanted in found.stderr
    assert not (tmp_path / "out").exists()


def test_ungated_goes_on_and_says_so(finished: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(finished.root, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    with run.stage("edge-a-tuned", [run.path("onnx", "model.onnx")]) as stage:
        write_json(run.path("parity", "a.json"), {"passed": False})
        stage.wrote(run.path("parity", "a.json"), run.path("onnx", "fixtures"))
    with pytest.raises(BudgetMissedError):
        write_kit(run, tmp_path / "out")
    assert write_kit(run, tmp_path / "out", ungated=True)["ungated"]
    assert run.manifest()["stages"]["unity"]["facts"]["ungated"]


ALTERED = ("onnx/model.onnx", "onnx/contract.json", "prompt_contract.json", "merged/tokenizer.json", "eval/gate.json")


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_file_of_the_run_is_refused(run: RunFolder, tmp_path: Path, name: str) -> None:
    with run.path(name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(StageError, match=f"files changed since they were recorded:\n  {name}: sha256 found"):
        write_kit(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


CONTRACTS: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "another family": ("onnx/contract.json", lambda d: d.update(family="detector"), "family found 'detector'"),
    "no window": (
        "onnx/contract.json",
        lambda d: d["constants"].update(sliding_window=None),
        "constants.sliding_window: found 'None'",
    ),
    "no whole number": (
        "onnx/contract.json",
        lambda d: d["constants"].update(layers=2.5),
        "constants.layers: found '2.5', wanted a whole number from 1",
    ),
    "a layer more": (
        "onnx/contract.json",
        lambda d: d["constants"].update(layers=d["constants"]["layers"] + 1),
        "names that differ in past_key_values.",
    ),
    "another schema": ("onnx/contract.json", lambda d: d.update(schema="x"), "schema found 'x'"),
    "a gate of another score": ("eval/gate.json", lambda d: d["score"].update(name="x"), "wanted first_token_margin"),
    "a gate without a number": ("eval/gate.json", lambda d: d.update(threshold=None), "threshold: found None"),
    "a gate of numbers": ("eval/gate.json", lambda d: d.update(tools=[1]), "wanted an array of texts"),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_that_the_loop_cannot_follow_is_refused_by_field(run: RunFolder, tmp_path: Path, name: str) -> None:
    file, change, wanted = CONTRACTS[name]
    edit_json(run.path(file), change)
    with run.stage("again") as stage:
        stage.wrote(run.path(file))  # recorded: not altered behind our back
    with pytest.raises(StageError) as caught:
        write_kit(run, tmp_path / "out")
    assert wanted in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_kit_of_another_namespace_in_the_folder_is_refused(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "Npc"
    write_kit(run, out)
    before = files_of(out)
    with pytest.raises(StageError, match=r"MlxSentis\.asmdef: the assembly MlxSentis is defined") as caught:
        write_kit(run, out, "MyGame.Npc")
    assert "--namespace MlxSentis," in caught.value.hint
    assert files_of(out) == before


def test_a_folder_that_another_process_writes_to_is_refused(run: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "Npc"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    found = call("unity", run.root, "--out", out)
    os.close(handle)
    assert found.exit_code == 1
    assert "another process is writing a kit there" in found.stderr
    assert list(out.iterdir()) == []
    assert call("unity", run.root, "--out", out).exit_code == 0


def test_a_full_disk_stops_before_any_source_is_changed(run: RunFolder, small_disk: Path) -> None:
    out = small_disk / "Npc"
    (out / "Runtime").mkdir(parents=True)
    (out / "Runtime" / "GreedyDecoder.cs").write_text("mine", encoding="utf-8")
    before = run.path("manifest.json").read_bytes()
    with pytest.raises(StageError, match=FULL):
        write_kit(run, out)
    assert {name: data for name, data in files_of(out).items() if "tokenizer" not in name} == {
        "Runtime/GreedyDecoder.cs": b"mine"
    }
    assert run.path("manifest.json").read_bytes() == before


def test_a_run_without_a_gate_brings_a_kit_without_one(run: RunFolder, tmp_path: Path, stubs: Path) -> None:
    run.path("eval", "gate.json").unlink()
    with pytest.raises(StageError, match=r"eval/gate\.json: recorded, not there"):
        write_kit(run, tmp_path / "kit")
    with run.stage("eval"):
        pass  # one that could make no gate
    facts = write_kit(run, tmp_path / "kit")
    assert not facts["gate"]
    assert not {"Runtime/CallGate.cs", "Runtime/GateRules.cs"} & set(facts["files"])
    assert "CallGate" not in (tmp_path / "kit" / "README.md").read_text(encoding="utf-8")
    build_kit(tmp_path / "kit", stubs, tmp_path / "built", "MlxSentis")


def test_parts_that_sentis_tokenizer_does_not_know_are_told(run: RunFolder, tmp_path: Path) -> None:
    path = run.path("merged", "tokenizer.json")
    edit_json(path, lambda d: d.update(normalizer={"type": "NFD"}))
    with run.stage("again") as stage:
        stage.wrote(path)
    found = call("unity", run.root, "--out", tmp_path / "out")
    assert found.exit_code == 0
    assert "tokenizer.json: normalizer NFD: " in found.stderr
