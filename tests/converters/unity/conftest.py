"""A prepared run, its kit, and the kit's tests compiled with Mono against stubs of NUnit and run."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from converters.unity.kit import write_kit
from mlx_sentis.prepare.run import run_prepare
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings

STUBS = Path(__file__).parent / "stubs"
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
        ended = subprocess.run(["mono", self.program, *words], capture_output=True, text=True, check=True)
        found = {}
        for line in ended.stdout.splitlines():
            how, _, rest = line.partition(" ")
            name, _, message = rest.partition(": ")
            found[name] = how if how == "passed" else message
        return found

    def prompts(self, *said: str) -> list[str]:
        """Return what the prompt builder makes of texts; of one that it refuses, `refused, ` and why."""
        found = self.run("prompts", *map(_base64, said))
        made = [found[str(number + 1)] for number in range(len(said))]
        return [one if one.startswith("refused") else base64.b64decode(one).decode() for one in made]

    def tokenizer(self, ids: Mapping[str, Sequence[int]]) -> str:
        """Return how the check of a tokenizer ends: `passed`, or its message."""
        return self.run("ids", *(f"{_base64(text)}:{','.join(map(str, one))}" for text, one in ids.items()))[
            "tokenizer"
        ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _compiled(kit: Path, namespace: str) -> Compiled:
    """Compile a kit as strictly as the project promises; any warning is an error."""
    program, stubs = kit.parent / f"{kit.name}.exe", kit.parent / "stubs"
    stubs.mkdir(exist_ok=True)
    for stub in STUBS.iterdir():
        text = stub.read_text(encoding="utf-8").replace("MlxSentis.", f"{namespace}.")
        (stubs / stub.name).write_text(text, encoding="utf-8")
    sources = [str(file) for folder in (kit, stubs) for file in sorted(folder.rglob("*.cs"))]
    flags = ["-langversion:7.2", "-warnaserror", "-warn:4", f"-out:{program}"]
    ended = subprocess.run(["mcs", *flags, *sources], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Compiled(program, next(kit.rglob("prompt_contract.json")))


@pytest.fixture(scope="session")
def compiled() -> Callable[[Path, str], Compiled]:
    """Return how a kit is compiled; without Mono skip, or under CI fail."""
    if missing := [name for name in ("mcs", "mono") if not shutil.which(name)]:
        what = f"{' and '.join(missing)} not found: on Debian `apt-get install mono-mcs mono-runtime`"
        # Mono is no part of the product: who has none can still run all other tests. CI must not pass without it.
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    return _compiled


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
    write_kit(prepared, folder, "MyGame.Npc")
    return compiled(folder, "MyGame.Npc")
