"""Trackers as sinks: TensorBoard's real files, read back; one that is not installed names the command that does."""

from __future__ import annotations

import contextlib
import importlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_sentis.training import events
from mlx_sentis.training.reporters import Reporter, figures_of, reporter
from parity.children import environment
from weights_bridge.errors import StageError
from weights_bridge.settings import Settings

STEP = events.StepDone(3, 0, 0.5, 1e-3, 0.25, 6.0, 30, 0.5, 400, 200, 60.0, 800.0, 400.0, 1.25, 90.0)


def test_the_names_are_those_of_the_log_and_nothing_is_left_out() -> None:
    assert figures_of(STEP) == {
        "train/loss": 0.5,
        "train/lr": 1e-3,
        "train/grad_norm": 0.25,
        "train/lora_magnitude": 6.0,
        "tokens_per_second/computed": 400.0,
        "tokens_per_second/real": 800.0,
        "tokens_per_second/supervised": 60.0,
        "peak_memory_gib": 1.25,
        "epoch": 0,
    }
    assert figures_of(events.EpochDone(0, 3, 0.75)) == {"valid/loss": 0.75}
    assert figures_of(events.EpochDone(0, 3, None)) == {}


@pytest.mark.parametrize(
    "end", [events.Finished(3, 1.0, 3), events.Stopped(4, 0, "loss is nan"), events.Interrupted(3, 0, "SIGINT")]
)
def test_a_tracker_is_closed_however_training_ends(end: events.Event) -> None:
    told: list[object] = []
    sink = Reporter(lambda figures, step: told.append(step), lambda: told.append("closed"))
    for event in (events.Started(42, 14, 10, 6, 48, 8), STEP, end):
        sink.receive(event)
    assert told == [3, "closed"]


def test_a_tracker_that_fails_is_given_up_once_and_training_goes_on() -> None:
    said: list[str] = []

    def fails(figures: object, step: int) -> None:
        raise ConnectionError("no route\nto anywhere")

    sink = Reporter(fails, lambda: said.append("closed"), "wandb", said.append)
    for event in (STEP, STEP, events.Finished(3, 1.0, 3)):
        sink.receive(event)
    assert said == ["--report-to wandb: ConnectionError: no route; training goes on without it"]


def test_a_tracker_that_does_not_start_is_a_line_and_a_hint(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("a file where its folder should be")
    with pytest.raises(StageError, match="--report-to tensorboard: does not start: FileExistsError") as caught:
        reporter("tensorboard", tmp_path, Settings())
    assert "train without --report-to tensorboard" in caught.value.hint


def test_tensorboard_gets_files_that_it_can_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = reporter("tensorboard", tmp_path, Settings())
    for event in (STEP, events.EpochDone(0, 3, 0.75), events.Finished(3, 1.0, 3)):
        sink.receive(event)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    tags = read.Tags()["tensors"]
    assert {"train/loss", "valid/loss", "tokens_per_second/real"} <= set(tags)
    [point] = read.Tensors("train/loss")
    assert (point.step, point.tensor_proto.float_val[0]) == (3, 0.5)


def told_by_a_process(name: str, folder: Path) -> str:
    """Report one update and the end in a process of its own, as trackers write behind its back; return its stdout."""
    words = f"""
from pathlib import Path
from mlx_sentis.training import events
from mlx_sentis.training.reporters import reporter
from weights_bridge.settings import Settings
sink = reporter({name!r}, Path({str(folder)!r}), Settings())
sink.receive(events.{STEP!r})
sink.receive(events.Finished(3, 1.0, 3))
"""
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(folder / "trackio")}
    done = subprocess.run([sys.executable, "-c", words], env=environment() | offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wandb_takes_the_figures_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    assert told_by_a_process("wandb", tmp_path) == ""
    [file] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert b"train/grad_norm" in file.read_bytes()


def test_trackio_keeps_the_figures_in_its_own_folder_and_off_stdout(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    assert told_by_a_process("trackio", tmp_path) == ""
    with contextlib.closing(sqlite3.connect(tmp_path / "trackio" / "mlx-sentis.db")) as base:
        [(step, metrics)] = base.execute("select step, metrics from metrics").fetchall()
    assert step == 3
    assert json.loads(metrics)["train/grad_norm"] == 0.25


@pytest.mark.parametrize("name", ["wandb", "trackio", "tensorboard"])
def test_a_tracker_that_is_not_installed_names_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., object] = importlib.import_module

    def without(module: str, *words: str) -> object:
        if module.split(".")[0] == name:
            raise ModuleNotFoundError(module)
        return real(module, *words)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(StageError) as caught:
        reporter(name, tmp_path, Settings())
    assert (caught.value.message, caught.value.hint) == (f"--report-to {name}: not installed", f"pip install {name}")
