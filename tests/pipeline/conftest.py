"""One toy run through all stages, made once: `mlx-sentis run` on 24 rows, real processes, real gates."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from helpers import call

ROWS = {"train": 24, "valid": 4, "calibration": 4, "holdout": 6}


@pytest.fixture(scope="session")
def small_data(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder of splits: the first rows of the shipped set."""

    def make(folder: Path) -> None:
        shipped = Path(str(files("mlx_sentis") / "data" / "npc-commands"))
        shutil.copyfile(shipped / "tools.json", folder / "tools.json")
        for split, count in ROWS.items():
            lines = (shipped / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
            (folder / f"{split}.jsonl").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")

    return made_once("npc", make)


@pytest.fixture(scope="session")
def toy_run(small_data: Path, made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A finished run of toy-llama; tests copy it before they alter it."""

    def make(folder: Path) -> None:
        settings = ["model.name=toy-llama", f"data.source={small_data}", "train.epochs=2", "train.batch_rows=8"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLX_SENTIS_CACHE", str(folder / "cache"))
            flags = [word for setting in settings for word in ("--set", setting)]
            result = call("run", "--out", folder / "toy", "--json", "--progress", "off", *flags)
        assert result.exit_code == 0, result.output

    return made_once("toy-run", make) / "toy"


@pytest.fixture(scope="module")
def children_here() -> Iterator[None]:
    """What would ask a child process (gate A0, ids of new texts) asks here: each start costs seconds of imports.

    The toy run itself was made with real ones.
    """

    def answer(module: str, request: dict[str, Any], request_file: Path) -> None:
        importlib.import_module(module).answer(json.loads(json.dumps(request)))

    with pytest.MonkeyPatch.context() as patch:
        for asking in ("parity.a0_sides", "parity.adapters_in_out", "parity.validate"):
            patch.setattr(f"{asking}.run_child", answer)
        yield


@pytest.fixture
def altered_run(toy_run: Path, tmp_path: Path) -> Callable[[Callable[[Path], object]], Path]:
    """Return a function that copies the run and lets a planter alter the copy."""

    def alter(plant: Callable[[Path], object]) -> Path:
        copy = tmp_path / "run"
        shutil.copytree(toy_run, copy, symlinks=True)
        plant(copy)
        return copy

    return alter
