"""`train` as a command on prepared data: what it writes, what it prints, how it goes on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from click.testing import Result
from helpers import ROOT, call
from small_training import SMALL, refused, train

from mlx_sentis.training import events, stage, step
from mlx_sentis.training.plan import count_updates, plan_updates, require_trainable
from mlx_sentis.training.sinks import JsonLines
from mlx_sentis.training.stage import train_run
from mlx_sentis.watch.log import read_log
from weights_bridge.adapter_file import adapter_of, read_adapter
from weights_bridge.errors import StageError
from weights_bridge.files import read_jsonl, write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import TrainSettings, resolve


def test_a_run_is_trained_recorded_and_told(run: Path) -> None:
    result = train(run, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    entry = RunFolder(run).manifest()["stages"]["train"]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in log if line["event"] == "step"]
    assert answer["schema"] == "mlx-sentis/train/1"
    assert {key: value for key, value in answer.items() if key != "schema"} == entry["facts"]
    assert (answer["updates"], answer["first_loss"], answer["last_loss"]) == (len(losses), losses[0], losses[-1])
    assert "checkpoints/6/adapter.safetensors" in entry["outputs"]
    assert {"log.jsonl", "checkpoints/3/adapter.safetensors"} < entry["outputs"].keys()
    assert {"data/train.jsonl", "recipe.json", "prompt_contract.json"} < entry["inputs"].keys()
    assert any(name.endswith("model.safetensors") for name in entry["inputs"])
    assert RunFolder(run).altered() == []
    assert read_adapter(adapter_of(run)).facts["type"] == "dora"
    assert adapter_of(run, "last").resolve() == (run / "checkpoints/6/adapter.safetensors").resolve()
    assert "train/loss=" in result.stderr  # the bar makes way for the document


def test_the_bar_goes_to_stdout_by_default_and_the_story_does_not(run: Path) -> None:
    result = train(run)
    assert re.search(r"\rStep 6, Epoch 1: 100%\|.*train/lora_magnitude=", result.stdout)
    assert result.stdout.splitlines()[-1].startswith(f"{run}: 6 updates in ")
    assert "train/loss" not in result.stderr
    assert "dora of rank 4 on 14 modules" in result.stderr


def test_progress_as_json_lines_is_one_object_a_line(run: Path) -> None:
    lines = train(run, "--progress", "jsonl").stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines[:2]] == ["started", "epoch_started"]
    assert lines[:-1] == (run / "log.jsonl").read_text().splitlines()


def test_progress_can_be_off(run: Path) -> None:
    result = train(run, "--progress", "off", "-q")
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize("where", ["stdout", "jsonl"])
def test_two_things_cannot_have_stdout(run: Path, where: str) -> None:
    result = train(run, "--json", "--progress", where)
    assert result.exit_code == 2
    assert not (run / "config.toml").exists()


def test_a_second_folder_gets_a_copy_of_the_data_and_stands_alone(prepared: Path, tmp_path: Path) -> None:
    result = train(tmp_path / "other", "--progress", "off", data=prepared)
    assert result.exit_code == 0, result.output
    assert list(RunFolder(tmp_path / "other").manifest()["stages"]) == ["data", "train"]
    for name in ("recipe.json", "prompt_contract.json", "data/train.jsonl"):
        assert (tmp_path / "other" / name).read_bytes() == (prepared / name).read_bytes()


def test_settings_of_a_run_are_kept_and_a_flag_changes_one(run: Path) -> None:
    resolve(overrides=("model.name=mine", "adapter.type=lora", "train.epochs=5")).write(run / "config.toml")
    assert train(run, "--progress", "off").exit_code == 0
    kept = resolve(file=run / "config.toml").settings
    assert (kept.model.name, kept.adapter.type, kept.train.epochs) == ("mine", "lora", 2)
    assert read_adapter(adapter_of(run)).facts["type"] == "lora"


def test_training_again_gives_the_same_adapter_and_replaces_the_entry(run: Path) -> None:
    train(run, "--progress", "off")
    first = adapter_of(run, "last").read_bytes()
    train(run, "--progress", "off")
    assert adapter_of(run, "last").read_bytes() == first
    assert RunFolder(run).altered() == []


def test_a_flag_a_file_and_python_give_the_same_run(run: Path, tmp_path: Path) -> None:
    """The same setting by three ways: as many trained tokens, the same losses."""
    chosen = ["train.accumulate=2", "train.optimizer=lion", "train.learning_rate=0.0001", "train.batch_rows=8"]
    chosen += ["train.epochs=2", "adapter.rank=4"]
    file = tmp_path / "npc.toml"
    resolve(overrides=tuple(chosen)).write(file)
    logs = []
    for name in ("flag", "file", "python"):
        copy = Path(shutil.copytree(run, tmp_path / name))
        if name == "python":
            train_run(RunFolder(copy), resolve(overrides=tuple(chosen)).settings, [])
        else:
            words = ["--config", file] if name == "file" else [word for one in chosen for word in ("--set", one)]
            assert call("train", "--data", copy, "--out", copy, "--progress", "off", *words).exit_code == 0
        logs.append([(s["trained_tokens"], s["train/loss"], s["train/lr"]) for s in read_log(copy / "log.jsonl").steps])
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 4  # two updates an epoch: accumulate was read


def test_memory_is_estimated_before_and_measured_after(run: Path) -> None:
    result = train(run)
    assert re.search(r"memory: about 0\.\d+ GiB \(weights .*\), this machine has [\d.]+ GiB\n", result.stderr)
    assert re.search(r"memory: estimated 0\.\d+ GiB, measured 0\.\d+ GiB \([+-]\d+%\)\n", result.stderr)
    facts = RunFolder(run).manifest()["stages"]["train"]["facts"]
    assert facts["estimate_gib"] == pytest.approx(facts["peak_gib"], rel=1)


def test_a_tracker_hears_of_the_run(run: Path) -> None:
    pytest.importorskip("tensorboard")
    assert train(run, "--report-to", "tensorboard", "--progress", "off").exit_code == 0
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))


# --- going on


def saved_by_signal(run: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> Result:
    """Train until an update and send the process SIGTERM there."""

    class Sends(JsonLines):
        def receive(self, event: events.Event) -> None:
            super().receive(event)
            if isinstance(event, events.StepDone) and event.step == after:
                os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(stage, "JsonLines", Sends)
        return train(run, "--progress", "off")


def test_a_terminated_training_resumes_to_the_same_files_and_one_log(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    assert train(whole, "--progress", "off").exit_code == 0
    result = saved_by_signal(run, monkeypatch, after=4)
    assert result.exit_code == 143
    assert "stopped by SIGTERM after update 4 of 6; its state is saved in checkpoints/4" in result.stderr
    assert "train" not in RunFolder(run).manifest()["stages"]
    with (run / "log.jsonl").open("a") as log:
        log.write('{"event": "step", "st')  # as a kill leaves it
    result = train(run, "--resume", "--progress", "off")
    assert result.exit_code == 0, result.output
    assert "going on after update 4, epoch 1" in result.stderr
    name = "checkpoints/6/state.safetensors"
    assert (run / name).read_bytes() == (whole / name).read_bytes()
    logs = [read_log(folder / "log.jsonl") for folder in (run, whole)]
    assert [s["train/loss"] for s in logs[0].steps] == [s["train/loss"] for s in logs[1].steps]
    assert logs[0].resumed == [4]
    facts = [RunFolder(folder).manifest()["stages"]["train"]["facts"] for folder in (run, whole)]
    for key in ("updates", "first_loss", "last_loss", "valid_losses", "best_step", "tokens_computed"):
        assert facts[0][key] == facts[1][key], key
    assert RunFolder(run).altered() == []


def test_a_resume_of_something_else_is_refused_and_changes_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_by_signal(run, monkeypatch, after=4)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = train(run, "--resume", "--set", "train.seed=7", "--set", "adapter.alpha=3")
    refused(
        result,
        r"cannot go on from this state:\n  adapter\.alpha: found 3\.0, .*\n  train\.seed: found 7, the state has 42",
    )
    rows = read_jsonl(run / "data" / "train.jsonl")
    write_jsonl(run / "data" / "train.jsonl", rows[::-1])
    (run / "manifest.json").unlink(missing_ok=True)
    refused(train(run, "--resume"), r"data/train\.jsonl: sha256 found")
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    changed = {p.relative_to(run).as_posix() for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    assert changed <= {"data/train.jsonl", "manifest.json"}


def test_a_resume_does_not_put_other_data_into_the_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    write_jsonl(other / "data" / "train.jsonl", read_jsonl(other / "data" / "train.jsonl")[::-1])
    saved_by_signal(run, monkeypatch, after=4)
    before = (run / "data" / "train.jsonl").read_bytes()
    refused(train(run, "--resume", data=other), r"these differ:\n  data/train\.jsonl\n")
    assert (run / "data" / "train.jsonl").read_bytes() == before


def test_training_again_without_resume_says_what_it_leaves(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_by_signal(run, monkeypatch, after=4)
    result = train(run, "--progress", "off")
    assert "starting over: an unfinished training of 4 updates is in" in result.stderr
    assert [s["step"] for s in read_log(run / "log.jsonl").steps] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"schema": "mlx-sentis/checkpoint/2"}', b"\xff\xfe"])
def test_a_state_that_cannot_be_read_does_not_keep_from_training_again(
    run: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    saved_by_signal(run, monkeypatch, after=4)
    (run / "checkpoints" / "4" / "state.json").write_bytes(content)
    refused(train(run, "--resume"), r"4: the state lacks|state\.json.*: not ")
    result = train(run, "--progress", "off")
    assert result.exit_code == 0, result.output
    assert "starting over: " in result.stderr
    assert [s["step"] for s in read_log(run / "log.jsonl").steps] == [1, 2, 3, 4, 5, 6]


def test_what_a_kill_left_is_put_right_before_the_next_training(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_by_signal(run, monkeypatch, after=4)
    log, checkpoints = (run / "log.jsonl").read_text(), run / "checkpoints"
    # a training that was to replace this one, killed before it saved: its log stands in the place of the first one's
    (run / ".log.jsonl-before").write_text(log)
    (run / "log.jsonl").write_text(log.splitlines(keepends=True)[0] + '{"event": "epoch_sta')
    # killed while a checkpoint was written, between the two renames of a swap, and with a link half made
    (checkpoints / ".6-abc_1" / "new").mkdir(parents=True)
    (checkpoints / ".6-abc_1" / "new" / "state.safetensors").write_bytes(b"half")
    (checkpoints / ".4-xyz" / "new").mkdir(parents=True)
    (checkpoints / "4").rename(checkpoints / ".4-xyz" / "old")
    (checkpoints / ".last-new").symlink_to("6")
    (run / ".prove-1" / "cut").mkdir(parents=True)
    result = train(run, "--resume", "--progress", "off")
    assert result.exit_code == 0, result.output
    assert not list(run.rglob(".*"))
    assert [s["step"] for s in read_log(run / "log.jsonl").steps] == [1, 2, 3, 4, 5, 6]
    assert RunFolder(run).altered() == []


def test_a_training_into_a_folder_in_which_another_trains_is_refused(run: Path) -> None:
    handle = os.open(run, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as the other process holds it
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused(train(run), "another training is writing to this folder already")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    os.close(handle)
    assert train(run, "--progress", "off").exit_code == 0


def test_a_disk_that_fills_up_under_the_log_is_one_line_also_when_the_log_is_closed(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(StageError, match=r"log\.jsonl: cannot be written"):  # noqa: SIM117
        with stage.log_to_write(small_disk / "log.jsonl", lambda: False, append=False) as log:
            log.receive(events.Started(42, 14, 41800, 6, 48, 4))
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"x" * 512):
                    pass
            for _ in range(1000):
                log.receive(events.Saved(1, 0, "checkpoints/1", False))


def test_sigusr1_while_the_model_is_loaded_does_not_end_the_training(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = stage.load_causal_lm

    def asked(folder: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return load(folder)

    before = signal.getsignal(signal.SIGUSR1)
    monkeypatch.setattr(stage, "load_causal_lm", asked)
    assert train(run, "--progress", "off").exit_code == 0
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_bar_that_nobody_reads_any_more_does_not_end_the_training(run: Path) -> None:
    words = ["train", "--data", str(run), "--out", str(run), *SMALL]
    with subprocess.Popen(
        [sys.executable, "-m", "cli", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        said = child.stderr.read().decode()
        assert child.wait() == 0, said
    assert "nobody reads the progress any more" in said
    assert "Traceback" not in said and "Exception" not in said
    assert [s["step"] for s in read_log(run / "log.jsonl").steps] == [1, 2, 3, 4, 5, 6]
    assert "train" in RunFolder(run).manifest()["stages"]


def test_settings_without_an_effect_are_told_and_contradictions_refused(run: Path) -> None:
    result = train(run, "--progress", "off", "--set", "train.momentum=0.5")
    assert "train.momentum=0.5 has no effect: adamw has none" in result.stderr
    refused(
        train(run, "--set", "train.full=true", "--set", "adapter.quantise=4"), "settings that contradict each other"
    )


def test_a_token_budget_asks_for_no_number_of_rows(run: Path) -> None:
    rows = read_jsonl(run / "data" / "train.jsonl")
    require_trainable(rows[:2], TrainSettings(batch_rows=8, batch_tokens=512))
    with pytest.raises(StageError, match="2 rows cannot fill one batch of 8"):
        require_trainable(rows[:2], TrainSettings(batch_rows=8))


@pytest.mark.parametrize("batch", [{"batch_rows": 1}, {"batch_rows": 3}, {"batch_rows": 28}, {"batch_tokens": 128}])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_count_of_updates_is_that_of_the_plan(run: Path, batch: dict[str, Any], accumulate: int) -> None:
    rows, settings = read_jsonl(run / "data" / "train.jsonl"), TrainSettings(epochs=3, accumulate=accumulate, **batch)
    assert count_updates(rows, settings) == sum(len(plan_updates(rows, settings, epoch)) for epoch in range(3))


def test_a_training_that_fails_before_it_saves_gives_the_earlier_log_back(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(run, "--progress", "off").exit_code == 0
    before = (run / "log.jsonl").read_bytes()
    settings = (run / "config.toml").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(step, "loss_of_batch", lambda *words: mx.array(mx.nan))
        refused(train(run, "--progress", "off", "--set", "train.learning_rate=0.5"), "nothing trained")
    assert (run / "log.jsonl").read_bytes() == before
    assert (run / "config.toml").read_bytes() == settings  # as the checkpoints were made
    assert RunFolder(run).altered() == []
    assert "stopped" in (run / "log.failed.jsonl").read_text()
