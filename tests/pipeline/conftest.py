"""One toy run through all stages, made once: `mlx-sentis run` on 24 rows, real processes, real gates."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from helpers import call

ROWS = {"train": 24, "valid": 4, "calibration": 4, "holdout": 6}


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of splits: the first rows of the shipped set."""
    folder = tmp_path_factory.mktemp("data") / "npc"
    folder.mkdir()
    shipped = Path(str(files("mlx_sentis") / "data" / "npc-commands"))
    shutil.copyfile(shipped / "tools.json", folder / "tools.json")
    for split, count in ROWS.items():
        lines = (shipped / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        (folder / f"{split}.jsonl").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def toy_run(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of toy-llama; tests copy it before they alter it."""
    cache = tmp_path_factory.mktemp("cache")
    root = tmp_path_factory.mktemp("runs") / "toy"
    settings = ["model.name=toy-llama", f"data.source={small_data}", "train.epochs=2", "train.batch_rows=8"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLX_SENTIS_CACHE", str(cache))
        flags = [word for setting in settings for word in ("--set", setting)]
        result = call("run", "--out", root, "--json", "--progress", "off", *flags)
    assert result.exit_code == 0, result.output
    (root.parent / "answer.json").write_text(result.stdout, encoding="utf-8")
    return root


@pytest.fixture
def altered_run(toy_run: Path, tmp_path: Path) -> Callable[[Callable[[Path], object]], Path]:
    """Return a function that copies the run and lets a planter alter the copy."""

    def alter(plant: Callable[[Path], object]) -> Path:
        copy = tmp_path / "run"
        shutil.copytree(toy_run, copy, symlinks=True)
        plant(copy)
        return copy

    return alter
