"""A pipeline that is stopped while it trains: what it says, and that going on gives the run that never stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import call

import cli
from mlx_sentis.watch.log import read_log
from parity import stages
from parity.children import environment
from parity.pipeline import StageFailedError
from weights_bridge.files import read_json
from weights_bridge.settings import resolve


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    """Start `run --from train` as a user would, with its progress as JSON lines."""
    command = [sys.executable, "-m", "cli", "run", "--out", str(root), "--from", "train", "--progress", "jsonl", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(), text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]


def wait_for(child: subprocess.Popen[str], name: str, step: int) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == name and event["step"] == step:
            return
    pytest.fail(f"no {name} {step}: {child.stderr.read()}")  # type: ignore[union-attr]


def test_a_terminated_run_saves_and_goes_on_to_the_adapter_of_the_run_that_never_stopped(
    toy_run: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(toy_run, tmp_path / "run", symlinks=True))
    whole = (root / "checkpoints" / "last" / "adapter.safetensors").read_bytes()
    losses = [step["train/loss"] for step in read_log(root / "log.jsonl").steps]
    child = start(root)
    wait_for(child, "step", 2)
    child.send_signal(signal.SIGTERM)  # to our process alone: it hands it on
    _, err = child.communicate()
    assert child.returncode == 143, err
    assert "stopped at stage train (terminated)" in err
    assert f"`mlx-sentis run --out {root} --from train` goes on; training goes on from its newest checkpoint" in err
    assert "Traceback" not in err
    assert not read_json(root / "checkpoints" / "last" / "state.json")["finished"]

    child = start(root)
    wait_for(child, "finished", 6)
    child.terminate()  # the stages behind it are as ever
    _, err = child.communicate()
    assert "going on after update" in err
    assert (root / "checkpoints" / "last" / "adapter.safetensors").read_bytes() == whole
    assert [step["train/loss"] for step in read_log(root / "log.jsonl").steps] == losses


def test_control_c_ends_a_run_as_shells_expect(toy_run: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(toy_run, tmp_path / "run", symlinks=True))
    child = start(root)
    wait_for(child, "step", 1)
    os.killpg(child.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches all processes of the group
    _, err = child.communicate()
    assert child.returncode == 130, err
    assert re.search(r"stopped by SIGINT after update \d of 6; its state is saved", err)
    assert "stopped at stage train (interrupted)" in err
    assert "Traceback" not in err


def test_control_c_in_a_stage_that_saves_nothing_is_one_line_and_130(
    tmp_path: Path, toy_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(overrides=(f"model.name={toy_model('llama')}",)).write(tmp_path / "config.toml")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(stages.STAGES, "export", interrupted)
    assert stages.main("export", str(tmp_path), "stdout", "loud") == 130  # and no traceback


@pytest.mark.parametrize(
    ("code", "word", "left"), [(130, "interrupted", 130), (-2, "interrupted", 130), (-15, "terminated", 143)]
)
def test_a_stage_that_a_signal_ended_says_which_and_no_state_is_spoken_of(
    code: int, word: str, left: int, tmp_path: Path
) -> None:
    error = StageFailedError("export", code, tmp_path)
    assert f"stopped at stage export ({word}); the stages before it" in error.message
    assert (error.exit_code, "checkpoint" in error.hint) == (left, False)


@pytest.mark.parametrize("number", [9, 11])  # Linux's own kill, and MLX's CPU backend without memory
def test_a_training_that_memory_ended_says_so_and_how_to_go_on(number: int, tmp_path: Path) -> None:
    error = StageFailedError("train", -number, tmp_path)
    assert f"stopped at stage train (ended by signal {number}; often memory ran out)" in error.message
    assert error.hint.endswith("training goes on from its newest checkpoint")
    assert error.exit_code == 1


def test_what_a_changed_setting_forbids_to_go_on_with_starts_over_and_says_so(toy_run: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(toy_run, tmp_path / "run", symlinks=True))
    child = start(root)
    wait_for(child, "step", 2)
    child.send_signal(signal.SIGTERM)
    child.communicate()
    child = start(root, "--set", "train.learning_rate=0.001")
    wait_for(child, "step", 1)  # from the first update
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate()
    assert "train.learning_rate: found 0.001, the state has 0.002" in err


def test_a_run_that_passed_ends_with_what_can_be_done_next(toy_run: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(toy_run, tmp_path / "my run", symlinks=True))
    said = call("run", "--out", root, "--from", "report").stdout
    passed, _, steps = said.partition("\n\nNext:\n")
    assert passed.endswith("Every gate that belongs to the run passed.")
    found = [shlex.split(line)[:3] for line in steps.splitlines()]
    assert found == [["mlx-sentis", name, str(root)] for name in ("unity", "quantise", "validate")]
    assert cli.COMMANDS.keys() >= {words[1] for words in found}
