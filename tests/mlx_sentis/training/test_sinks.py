"""The progress line, read with the dashboard's own expressions, and the log beside it."""

from __future__ import annotations

import errno
import io
import json
import math
import re
from pathlib import Path

import pytest

from mlx_sentis.training import sinks
from mlx_sentis.training.events import (
    EpochDone,
    EpochStarted,
    Event,
    Finished,
    Interrupted,
    Resumed,
    Saved,
    Started,
    StepDone,
    Stopped,
)
from mlx_sentis.training.sinks import JsonLines, ProgressBar, WhileRead
from weights_bridge.errors import StageError

NUMBER = r"([\d.eE+-]+|nan[\d.]*|inf[\d.]*)"
LATEST = re.compile(r"Epoch (\d+):\s+\d+%.*?(\d+)/(\d+)")
STEP = re.compile(r"Step (\d+),")
HISTORY = re.compile(r"Epoch (\d+):\s+\d+%.*?(\d+)/(\d+).*?train/loss=" + NUMBER)
RATE = re.compile(r"train/lr=" + NUMBER)
NORM = re.compile(r"train/grad_norm=" + NUMBER)
MAGNITUDE = re.compile(r"train/lora_magnitude=" + NUMBER)
POSTFIX = re.compile(
    r"train/loss=\d+\.\d{6}, train/lr=\d\.\d{3}e[+-]\d\d, "
    r"train/grad_norm=\d+\.\d{6}, train/lora_magnitude=\d+\.\d{6}\]$"
)
LOSSES = [2.304639, 2.483862, 0.5, 1.25]
RATES = [3.8e-4, 5.42e-4, 1e-5, 0.0]
SCRIPT: list[Event] = [
    Started(42, 14, 41800, 6, 48, 4),
    EpochStarted(0, 0, 2),
    StepDone(1, 0, LOSSES[0], RATES[0], 0.2, 6.493514, 30, 0.5, 400, 200, 60.0, 800.0, 400.0, 1.25, 1.5),
    StepDone(2, 0, LOSSES[1], RATES[1], 0.1, 6.5, 31, 0.5),
    EpochDone(0, 2, 2.25),
    Saved(2, 0, "checkpoints/2", False),
    EpochStarted(1, 2, 2),
    StepDone(3, 1, LOSSES[2], RATES[2], 0.1, 6.5, 30, 0.5),
    StepDone(4, 1, LOSSES[3], RATES[3], 0.1, 6.5, 31, 0.5),
    EpochDone(1, 4, None),
    Saved(4, 1, "checkpoints/4", True),
    Finished(4, 2.5, 2),
]


def shown(script: list[Event]) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    bar = ProgressBar(stream)
    for event in script:
        bar.receive(event)
    stream.seek(0)
    return stream.read()


def bars(text: str) -> list[str]:
    """Return what the dashboard sees as progress lines: pieces between carriage returns and newlines."""
    return [piece for piece in re.split(r"[\r\n]", text) if LATEST.search(piece)]


def test_the_history_holds_each_updates_figures() -> None:
    points = {}
    for line in bars(shown(SCRIPT)):
        if (found := HISTORY.search(line)) and found[2] != "0":  # position 0 is skipped
            figures = [float(pattern.search(line)[1]) for pattern in (RATE, NORM, MAGNITUDE)]  # type: ignore[index]
            points.setdefault((int(found[1]), int(found[2])), [float(found[4]), *figures])
    assert points == {
        (0, 1): [2.304639, 3.8e-4, 0.2, 6.493514],
        (0, 2): [2.483862, 5.42e-4, 0.1, 6.5],
        (1, 1): [0.5, 1e-5, 0.1, 6.5],
        (1, 2): [1.25, 0.0, 0.1, 6.5],
    }


def test_the_latest_step_counts_over_epochs() -> None:
    last = bars(shown(SCRIPT))[-1]
    latest, step = LATEST.search(last), STEP.search(last)
    assert latest is not None
    assert step is not None
    assert (latest.groups(), step[1]) == (("1", "2", "2"), "4")


def test_every_line_is_a_carriage_return_the_step_and_the_bar() -> None:
    text = shown(SCRIPT)
    for line in bars(text):
        assert re.match(r"Step \d+, Epoch \d+:\s+\d+%\|.{10}\| \d+/2 \[\d\d:\d\d<(\d\d:\d\d|\?), ", line), line
        assert f"\r{line}" in text
    assert not re.search(r"^\s*100%\|", text, re.MULTILINE)


def test_a_new_loss_first_appears_under_the_step_before() -> None:
    # of each update three lines: figures, step, position – in the order of the torch loop
    seen = []
    for line in bars(shown(SCRIPT)):
        loss, step, latest = re.search(r"train/loss=([\d.]+)", line), STEP.search(line), LATEST.search(line)
        assert step is not None
        assert latest is not None
        seen.append((int(step[1]), int(latest[2]), loss and float(loss[1])))
    # tqdm prints the last line of an epoch once more when the bar closes
    closed = [line for index, line in enumerate(seen) if index == 0 or line != seen[index - 1]]
    assert closed == [
        (0, 0, None),
        (0, 0, 2.304639),
        (1, 0, 2.304639),
        (1, 1, 2.304639),
        (1, 1, 2.483862),
        (2, 1, 2.483862),
        (2, 2, 2.483862),
        (2, 0, None),
        (2, 0, 0.5),
        (3, 0, 0.5),
        (3, 1, 0.5),
        (3, 1, 1.25),
        (4, 1, 1.25),
        (4, 2, 1.25),
    ]


RECORDED = [  # loss, rate told, gradient norm, magnitude: of the three updates of goldens/underfit-epoch.log
    (2.3046393394470215, 0.0003799998100001425, 0.19999973958459194, 6.493514246978184),
    (2.4838624000549316, 0.0005419994580008128, 0.19999983976280034, 6.493580529810444),
    (2.6952016353607178, 0.0006877989683023213, 0.19999992734727545, 6.495331346620429),
]


def test_an_epoch_is_the_torch_loops_byte_for_byte_but_for_the_clock() -> None:
    def without_clock(text: str) -> str:
        text = re.sub(r"\[\d\d:\d\d<(\d\d:\d\d|\?), +[\d.?]+(it/s|s/it)", "[clock", text)
        return re.sub(r" +(?=[\r\n])", "", text)  # a shorter rate than the one before leaves blanks to cover it

    script: list[Event] = [EpochStarted(0, 0, 3)]
    script += [StepDone(n, 0, *figures, 30, 0.5) for n, figures in enumerate(RECORDED, 1)]
    recorded = (Path(__file__).with_name("goldens") / "underfit-epoch.log").read_bytes().decode()
    assert recorded.count("\r") == 11
    assert without_clock(shown([*script, EpochDone(0, 3, None)])) == without_clock(recorded)


def test_the_figures_have_the_dashboards_formats() -> None:
    lines = [line for line in bars(shown(SCRIPT)) if "train/" in line]
    assert len(lines) >= 12
    assert all(POSTFIX.search(line.rstrip()) for line in lines)  # tqdm blanks out a longer line before


def test_plain_lines_stand_alone() -> None:
    plain = [line for line in re.split(r"[\r\n]", shown(SCRIPT)) if line.strip() and not LATEST.search(line)]
    assert plain == [
        "Seed set to 42",
        "Trainable LoRA params: 41,800 in 14 modules; 6 rows, 48 prompt tokens shared, 4 updates",
        "Epoch 0 done: valid/loss=2.250000",
        "✓ Saved checkpoint -- checkpoints/2",
        "✓ Saved checkpoint -- checkpoints/4 (final)",
        "Training done",
    ]


def test_a_line_in_the_middle_of_an_epoch_does_not_tear_the_bar() -> None:
    text = shown([*SCRIPT[:3], Saved(1, 0, "checkpoints/1", True), Stopped(2, 0, "loss is nan")])
    assert re.search(r"\r *\r✓ Saved checkpoint -- checkpoints/1 \(final\)\n\rStep 1, Epoch 0: ", text)
    assert text.endswith("\nStopped at update 2: loss is nan\n")


def test_a_figure_that_is_not_finite_is_still_read() -> None:
    line = bars(shown([*SCRIPT[:2], StepDone(1, 0, math.nan, 1e-4, math.inf, 1.0, 3, 0.1)]))[-1]
    assert HISTORY.search(line)[4] == "nan"  # type: ignore[index]
    assert NORM.search(line)[1] == "inf"  # type: ignore[index]


def test_the_log_holds_what_the_bar_shows(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    for event in SCRIPT:
        log.receive(event)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        *["started", "epoch_started", "step", "step", "epoch_done", "saved"],
        *["epoch_started", "step", "step", "epoch_done", "saved", "finished"],
    ]
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["train/loss"] for line in steps] == LOSSES
    assert [line["train/lr"] for line in steps] == RATES
    in_bar = {f"{key}={value:.6f}" for line in steps for key, value in line.items() if key == "train/loss"}
    assert in_bar == set(re.findall(r"train/loss=[\d.]+", shown(SCRIPT)))
    assert steps[0] == {
        "event": "step",
        "step": 1,
        "epoch": 0,
        "train/loss": 2.304639,
        "train/lr": 3.8e-4,
        "train/grad_norm": 0.2,
        "train/lora_magnitude": 6.493514,
        "trained_tokens": 30,
        "seconds": 0.5,
        "real_tokens": 400,
        "computed_tokens": 200,
        "trained_per_second": 60.0,
        "real_per_second": 800.0,
        "computed_per_second": 400.0,
        "peak_memory_gib": 1.25,
        "seconds_left": 1.5,
    }
    assert log.file.closed


def test_a_log_that_goes_on_loses_only_the_line_that_a_kill_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "started"}\n{"event": "step", "step": 1}\n{"event": "st', encoding="utf-8")
    JsonLines(path, append=True).receive(Resumed(1, 0, 4))
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["started", "step", "resumed"]
    path.write_text('{"event": "st', encoding="utf-8")
    JsonLines(path, append=True).receive(Resumed(0, 0, 4))
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["resumed"]


def test_a_resumed_epochs_bar_begins_where_the_state_was() -> None:
    text = shown([SCRIPT[0], Resumed(3, 1, 4), EpochStarted(1, 3, 2, 1), SCRIPT[8], Interrupted(4, 1, "SIGTERM")])
    assert re.search(r"\rStep 3, Epoch 1:\s+50%\|.{10}\| 1/2 ", text)
    assert LATEST.search(bars(text)[-1]).groups() == ("1", "2", "2")  # type: ignore[union-attr]
    assert "Resumed after update 3 of 4, epoch 1\n" in text
    assert text.endswith("\nInterrupted by SIGTERM after update 4\n")


def test_the_log_is_strict_json_whatever_the_figures(tmp_path: Path) -> None:
    stream = io.StringIO()
    JsonLines(stream).receive(StepDone(1, 0, math.nan, 1e-4, -math.inf, 1.0, 3, 0.1))
    line = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert (line["train/loss"], line["train/grad_norm"], line["train/lr"]) == (None, None, 1e-4)


def test_each_event_is_in_the_log_at_once(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.receive(SCRIPT[0])
    assert json.loads((tmp_path / "log.jsonl").read_text())["event"] == "started"
    log.receive(Stopped(1, 0, "loss is nan"))
    assert log.file.closed


def test_a_full_disk_under_the_log_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = JsonLines(tmp_path / "log.jsonl")

    def full(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sinks, "print", full, raising=False)
    with pytest.raises(StageError, match=r"log\.jsonl: cannot be written: the disk is full; what was written before"):
        log.receive(SCRIPT[0])
    with pytest.raises(StageError, match=r"gone/log\.jsonl: cannot be written"):
        JsonLines(tmp_path / "gone" / "log.jsonl")


class Leaving(io.StringIO):
    """A stream whose reader leaves after some writes, as a closed pipe answers."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("make", [ProgressBar, JsonLines])
@pytest.mark.parametrize("writes", [0, 1, 5])
def test_a_reader_that_leaves_is_told_once_and_training_goes_on(make: type, writes: int) -> None:
    stream, said = Leaving(writes), []
    sink = WhileRead(make(stream), stream, said.append)
    for event in SCRIPT:
        sink.receive(event)
    assert len(said) == 1
    assert "log.jsonl has every update" in said[0]
