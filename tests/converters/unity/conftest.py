"""A prepared run, its kit, and the kit's tests compiled with Mono against stubs of NUnit and run."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from exports import Exported
from unity_kit import Built, build_kit, build_stubs, require_mono, said_by

from converters.unity.kit import write_kit
from mlx_sentis.evaluation.gate import Judged, choose_gate, gate_document
from mlx_sentis.evaluation.scoring import Answer
from mlx_sentis.prepare.run import run_prepare
from parity.fixtures import choose_fixtures, write_fixtures
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.files import read_jsonl, write_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings

TOOL = {
    "name": "set_light",
    "parameters": {"properties": {"state": {"enum": ["on", "off"]}, "lamps": {"type": "integer"}}},
}
CALLING = ("Make it bright in here", "Put the lamps on, all three")
OTHERS = ("I'd like to see the map", "It's so dark, help", "Où?")


@dataclass(frozen=True)
class Compiled:
    """The tests of a kit, compiled."""

    program: Path
    contract: Path

    def run(self, *words: str) -> dict[str, str]:
        """Run the tests of the kit and return test to `passed`, or to its message."""
        found = {}
        for line in said_by(self.program, *words):
            how, _, rest = line.partition(" ")
            name, _, message = rest.partition(": ")
            found[name] = how if how == "passed" else message
        return found

    def prompts(self, *said: str) -> list[str]:
        """Return what the prompt builder makes of texts; of one that it refuses, `refused, ` and why."""
        found = self.run("prompts", *map(_base64, said))
        made = [found[str(number + 1)] for number in range(len(said))]
        return [one if one.startswith("refused") else base64.b64decode(one).decode() for one in made]

    def calls(self, *answers: str) -> list[str]:
        """Return the call that each answer makes, as `name arguments` spelled out; empty where it makes none."""
        found = self.run("calls", *map(_base64, answers))
        return [found[str(number + 1)] for number in range(len(answers))]

    def tokenizer(self, ids: Mapping[str, Sequence[int]]) -> str:
        """Return how the check of a tokenizer ends: `passed`, or its message."""
        return self.run("ids", *(f"{_base64(text)}:{','.join(map(str, one))}" for text, one in ids.items()))[
            "tokenizer"
        ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="session")
def stubs(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The stubs of Unity's assemblies, compiled once."""
    require_mono()
    return made_once("unity-stubs", build_stubs)


@pytest.fixture(scope="session")
def compiled(stubs: Path) -> Callable[[Path, str], Compiled]:
    """Return how a kit is compiled with its tests; without Mono skip, or under CI fail."""

    def compile_kit(kit: Path, namespace: str) -> Compiled:
        built = build_kit(kit, stubs, kit.parent / f"{kit.name}-built", namespace)
        return Compiled(built.program("Tests"), next(kit.rglob("prompt_contract.json")))

    return compile_kit


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, toy_model: Callable[[str], Path]) -> RunFolder:
    """A prepared run of a toy with a begin token, whose template strips texts; calls and refusals. Copy to change."""
    folder = tmp_path_factory.mktemp("prepared")
    rows: list[dict[str, Any]] = [{"user": text, "call": None} for text in OTHERS]
    rows += [{"user": text, "call": {"name": "set_light", "arguments": {"state": "on"}}} for text in CALLING]
    (folder / "tools.json").write_text(json.dumps({"tools": [TOOL]}), encoding="utf-8")
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = DataSettings(holdout_share=0, valid_share=0, calibration_share=0)
    run_prepare(str(folder), str(toy_model("gemma3_text")), folder / "run", settings)
    return RunFolder(folder / "run")


@pytest.fixture(scope="session")
def kit(
    tmp_path_factory: pytest.TempPathFactory,
    prepared: RunFolder,
    compiled: Callable[[Path, str], Compiled],
) -> Compiled:
    """The compiled kit of the run. Whoever changes its contract writes it back."""
    folder = tmp_path_factory.mktemp("assets") / "Npc"
    write_kit(prepared, folder, "MyGame.Npc", prompt_only=True)
    return compiled(folder, "MyGame.Npc")


GATE_ROWS = [Judged("set_light", Answer("call", "set_light", {"state": "on"}), 2.5 + at) for at in range(5)]
GATE_ROWS += [Judged(None, Answer("call", "set_light", {"state": "on"}), 0.1 * at) for at in range(5)]


def write_finished_run(prepared: RunFolder, exported: Exported, folder: Path) -> RunFolder:
    """Write a run that has what a kit is made of: the prepared one, a graph with fixtures, a passed edge A, a gate."""
    shutil.copytree(prepared.root, folder)
    run = RunFolder(folder)
    onnx, merged, parity, gate = (run.path(name) for name in ("onnx", "merged", "parity", "eval"))
    with run.stage("swap") as stage:
        shutil.copytree(exported.model, merged)
        onnx.mkdir()
        shutil.copyfile(exported.onnx, onnx / "model.onnx")
        write_json(onnx / "contract.json", exported.contract)
        stage.wrote(onnx, merged)
    with run.stage("edge-a-tuned", [onnx / "model.onnx"]) as stage:
        chosen = choose_fixtures(read_jsonl(run.path("data", "train.jsonl")), 2, exported.contract)
        decoder = OnnxDecoder(onnx / "model.onnx", exported.contract)
        outputs = [decoder.forward(fixture.ids) for fixture in chosen]
        write_fixtures(onnx / "fixtures", chosen, outputs, exported.contract)
        write_json(parity / "a.json", {"schema": "mlx-sentis/a/1", "gate": "a", "passed": True})
        stage.wrote(onnx / "fixtures", parity / "a.json")
    with run.stage("eval") as stage:
        chosen_gate = choose_gate(GATE_ROWS, 3)
        document = gate_document(chosen_gate, GATE_ROWS, refusal="none", known_tools=["set_light"])
        write_json(gate / "gate.json", document)
        stage.wrote(gate / "gate.json")
    return run


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prepared: RunFolder, exported: Callable[..., Exported]
) -> RunFolder:
    """A finished run of a decoder with sliding layers. Copy to change."""
    return write_finished_run(prepared, exported("gemma3_text"), tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def finished_of(prepared: RunFolder, tmp_path: Path) -> Callable[[Exported], RunFolder]:
    """Return how a finished run of another export is made."""
    return lambda export: write_finished_run(prepared, export, tmp_path / "run")


@dataclass(frozen=True)
class Project:
    """A Unity project with a kit in it, and the kit's assemblies.

    Attributes:
        folder: the project's; `Assets/` is in it.
        kit: the kit's folder.
        built: its assemblies.
    """

    folder: Path
    kit: Path
    built: Built


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, finished: RunFolder, stubs: Path) -> Project:
    """A project with the kit of the finished run. Copy to change."""
    folder = tmp_path_factory.mktemp("project")
    kit = folder / "Assets" / "Npc"
    write_kit(finished, kit, "MyGame.Npc")
    shutil.copy(finished.path("eval", "gate.json"), folder)
    return Project(folder, kit, build_kit(kit, stubs, folder / "built", "MyGame.Npc"))
