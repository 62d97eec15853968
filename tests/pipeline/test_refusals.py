"""A run that cannot go on: what is told, when, and what is left as it was."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import call

from parity import stages
from weights_bridge.files import sha256_of
from weights_bridge.run_folder import RunFolder

Alter = Callable[[Callable[[Path], object]], Path]


def conversion_never_began(root: Path) -> bool:
    return not (root / "onnx").exists() and not (root / "manifest.json").exists()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_broken_row_is_told_before_minutes_of_conversion(
    small_data: Path, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(small_data, tmp_path / "data"))
    with (data / "train.jsonl").open("a") as file:
        file.write('{"user": "go"\n')
    root = tmp_path / "run"
    result = call("run", "--out", root, "--set", "model.name=toy-llama", "--set", f"data.source={data}")
    assert result.exit_code == 1 and "stopped at stage recipe" in result.stderr
    told = capfd.readouterr().err
    assert f"{data}/train.jsonl:25: not JSON" in told
    assert "--set data.skip_bad=true" in told, "`run` has no --skip-bad: the hint must be one that it takes"
    assert conversion_never_began(root)


def test_a_batch_that_the_rows_cannot_fill_is_told_before_conversion(
    small_data: Path, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    words = ["model.name=toy-llama", f"data.source={small_data}", "train.batch_rows=25"]
    result = call("run", "--out", root, *[word for setting in words for word in ("--set", setting)])
    said = capfd.readouterr().err
    assert result.exit_code == 1 and "(add --set for a changed setting)" in result.stderr
    assert "split train: 24 rows cannot fill one batch of 25" in said
    assert "--set train.batch_rows=24" in said
    assert conversion_never_began(root)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("adapter.targets=attn.nope", "targets: 'attn.nope' matches no module"),
        ("adapter.rank_pattern={nope=4}", "rank_pattern: 'nope' matches no module"),
        ("train.final_learning_rate=1", "train.final_learning_rate=1 is above train.learning_rate=0.002"),
    ],
)
def test_settings_that_training_would_refuse_are_told_before_conversion(
    setting: str, words: str, small_data: Path, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    chosen = ["model.name=toy-llama", f"data.source={small_data}", "train.batch_rows=4", setting]
    result = call("run", "--out", root, *[word for one in chosen for word in ("--set", one)])
    assert result.exit_code == 1 and "stopped at stage recipe" in result.stderr
    assert words in capfd.readouterr().err
    assert conversion_never_began(root)


@pytest.fixture
def full_disk() -> Iterator[Callable[[], None]]:
    """Return a switch after which no file of this process may grow beyond 40,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("stage", [pytest.param("export", marks=pytest.mark.slow), "train", "bridge", "swap", "fix"])
def test_a_full_disk_in_a_stage_is_one_line_and_every_recorded_file_stays(
    altered_run: Alter, full_disk: Callable[[], None], capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    root = altered_run(lambda copy: None)
    before = RunFolder(root).recorded_hashes()
    full_disk()
    code = stages.main(stage, str(root), "off", "quiet")
    said = capsys.readouterr().err
    assert code == 1, said
    assert [line for line in said.splitlines() if "cannot be written" in line], said
    assert {name: sha256_of(root / name) for name in before} == before
    assert not list(root.rglob(".*-*"))
