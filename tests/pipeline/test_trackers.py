"""`run --report-to`: refused before any work where it cannot be, handed to the training stage where it can."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call

from mlx_sentis.training import events, reporters
from parity import pipeline, stages
from weights_bridge.files import write_jsonl
from weights_bridge.settings import resolve


def test_a_tracker_that_is_not_installed_stops_a_run_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., object] = importlib.import_module

    def without(module: str, *words: str) -> object:
        if module == "trackio":
            raise ModuleNotFoundError(module)
        return real(module, *words)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr(pipeline, "run_stage", lambda *words: pytest.fail("a stage began"))
    result = call("run", "--out", tmp_path / "run", "--set", "model.name=toy-llama", "--report-to", "trackio")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: --report-to trackio: not installed\n  hint: pip install trackio")
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_used_wrongly(tmp_path: Path) -> None:
    result = call("run", "--out", tmp_path / "run", "--report-to", "tensorbord")
    assert result.exit_code == 2
    assert "'tensorbord' is not one of 'wandb', 'trackio', 'tensorboard'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_training_stage_tells_every_tracker_that_the_run_was_given(
    toy_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporters, "tracker_module", lambda name: None)
    words: list[list[str]] = []

    class Started:
        def __init__(self, command: list[str], **options: Any) -> None:
            words.append(command)

        def wait(self) -> int:
            return 0

        def send_signal(self, number: int) -> None:
            pytest.fail("nobody asked to stop")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.subprocess, "Popen", Started)
        patch.setattr("weights_bridge.files.read_json", lambda path: {"edges": {}, "passed": False})
        patch.setattr("parity.report.verdict_table", lambda report: "")
        chosen = ("--report-to", "wandb", "--report-to", "tensorboard", "-q", "--progress", "off")
        result = call("run", "--out", tmp_path / "run", "--set", "model.name=toy-llama", *chosen)
        assert result.exit_code == 0, result.output
    [command] = [one for one in words if one[3] == "train"]

    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"Open gate {i}", "completion": f"Gate {i}."} for i in range(24)])
    run = tmp_path / "prepared"
    assert call("prepare", tmp_path / "rows.jsonl", "--model", toy_model("llama"), "--out", run).exit_code == 0
    resolve(overrides=("train.epochs=1", "adapter.rank=2")).write(run / "config.toml")
    heard: dict[str, list[events.Event]] = {}

    class Heard:
        def __init__(self, name: str) -> None:
            self.receive = heard.setdefault(name, []).append

    monkeypatch.setattr(reporters, "reporter", lambda name, root, settings, say: Heard(name))
    assert stages.main("train", str(run), *command[5:]) == 0
    assert list(heard) == ["wandb", "tensorboard"]
    assert all(isinstance(told[-1], events.Finished) for told in heard.values())
