"""`watch`: what a log says, also of a run that is going on, was killed, resumed, or is damaged."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import call
from PIL import Image

from mlx_sentis.training import events
from mlx_sentis.training.sinks import JsonLines
from mlx_sentis.watch.log import read_log
from mlx_sentis.watch.page import page, plots, state
from weights_bridge.errors import StageError
from weights_bridge.lock import one_at_a_time


def step(number: int, loss: float = 1.0) -> events.StepDone:
    return events.StepDone(number, number // 4, loss, 1e-3, 0.5, 6.0, 30, 0.5, 400, 200, 60.0, 800.0, 400.0, 1.25, 90.0)


STARTED = events.Started(42, 14, 41800, 6, 48, 8)
RUNNING = [STARTED, events.EpochStarted(0, 0, 4), *(step(n, 4 / n) for n in range(1, 5)), events.EpochDone(0, 4, 1.5)]
FINISHED = [*RUNNING, step(5), events.EpochDone(1, 5, 1.75), events.Finished(5, 2.5, 4)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "npc <1>"
    folder.mkdir()
    return folder


def write(run: Path, script: list[events.Event], cut: str = "") -> None:
    with (run / "log.jsonl").open("w", encoding="utf-8") as file:
        sink = JsonLines(file)
        for event in script:
            sink.receive(event)
        file.write(cut)


class Reader(HTMLParser):
    """Collects tags, texts and everything that names another place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.places: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.places += [
            v or "" for k, v in attrs if k in ("src", "href", "xlink:href") and not (v or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_stands_alone_and_shows_the_figures(run: Path) -> None:
    write(run, FINISHED)
    result = call("watch", run, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["schema"], answer["updates"]) == ("mlx-sentis/watch/1", 5)
    text = (run / "watch.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert reader.places == []  # no script, style, font or picture from elsewhere
    assert "script" not in reader.tags
    assert "url(http" not in text
    assert reader.tags.count("svg") == 1
    said = " ".join(reader.texts)
    for words in ("npc <1>", "1.5000 (update 4)", "400", "800", "60", "1.25 GiB", "best after update 4"):
        assert words in said, words


def test_a_finished_page_does_not_reload_itself_and_a_running_one_does(run: Path) -> None:
    write(run, RUNNING)
    running = page(read_log(run / "log.jsonl"), "npc")
    write(run, FINISHED)
    finished = page(read_log(run / "log.jsonl"), "npc")
    assert 'http-equiv="refresh"' in running
    assert 'http-equiv="refresh"' not in finished
    assert "1 min 30 s left" in running


def test_once_writes_a_picture(run: Path, tmp_path: Path) -> None:
    write(run, RUNNING)
    assert call("watch", run, "--once", tmp_path / "loss.png").exit_code == 0
    with Image.open(tmp_path / "loss.png") as picture:
        assert picture.format == "PNG"
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24) or []}
    assert {(0x25, 0x63, 0xA8), (0xC2, 0x41, 0x0C), (0x2F, 0x7D, 0x4F), (0x6B, 0x4F, 0xA0)} <= colours  # every curve


def test_updates_are_whole_and_a_clipped_norm_does_not_lie_on_the_edge(run: Path) -> None:
    clipped = [replace(step(n), grad_norm=1 - 1e-7 * n) for n in range(1, 5)]
    write(run, [replace(STARTED, updates=18), events.EpochStarted(0, 0, 4), *clipped])
    figure = plots(read_log(run / "log.jsonl"))
    figure.canvas.draw()
    for axes in figure.axes:
        assert all(tick.is_integer() for tick in axes.get_xticks())
    (norm,) = (axes for axes in figure.axes if axes.get_title(loc="left").startswith("gradient norm"))
    assert max(norm.lines[0].get_ydata()) < 0.97 * norm.get_ylim()[1]


def test_a_name_that_is_no_picture_is_used_wrongly(run: Path) -> None:
    write(run, RUNNING)
    assert call("watch", run, "--once", "loss.gif").exit_code == 2


def test_the_page_follows_a_training_to_its_end(run: Path) -> None:
    write(run, RUNNING)
    threading.Timer(0.5, lambda: write(run, FINISHED)).start()
    result = call("watch", run, "--every", "0.2")
    assert result.exit_code == 0, result.output
    assert "finished: update 5" in (run / "watch.html").read_text(encoding="utf-8")


def test_a_line_that_is_still_being_written_is_left_out(run: Path) -> None:
    write(run, RUNNING, cut='{"event": "step", "st')
    assert [s["step"] for s in read_log(run / "log.jsonl").steps] == [1, 2, 3, 4]


def test_a_resume_voids_what_was_told_after_its_state(run: Path) -> None:
    write(run, [*RUNNING, STARTED, events.Resumed(2, 0, 8), step(3, 9.0)])
    log = read_log(run / "log.jsonl")
    assert [(s["step"], s["train/loss"]) for s in log.steps] == [(1, 4.0), (2, 2.0), (3, 9.0)]
    assert (log.epochs, log.resumed, log.end) == ([], [2], None)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (events.Stopped(5, 1, "loss is nan"), "stopped at update 5: loss is nan"),
        (events.Interrupted(4, 1, "SIGTERM"), "interrupted by SIGTERM after update 4 of 8"),
        (events.Finished(4, 2.5, 4), "finished: update 4 of 8, epoch 1; best after update 4"),
    ],
)
def test_the_end_is_told(run: Path, end: Any, words: str) -> None:
    write(run, [*RUNNING, end])
    log = read_log(run / "log.jsonl")
    assert state(log) == words
    assert words in page(log, "npc")


def test_figures_that_are_not_finite_leave_gaps(run: Path) -> None:
    write(run, [*RUNNING, step(5, float("nan"))])
    assert "not finite" in page(read_log(run / "log.jsonl"), "npc")


def test_a_log_before_the_first_update_is_a_page_too(run: Path) -> None:
    write(run, [STARTED])
    assert "no update yet" in page(read_log(run / "log.jsonl"), "npc")


def test_a_missing_log_and_one_that_is_none_are_refused(run: Path) -> None:
    assert re.search(r"log\.jsonl: no such file\n  hint: ", call("watch", run).stderr)
    for line in ("[1, 2]", "3", '{"event": "step", "step": 2}', '{"event": "saved", "step": "two"}', '{"event": []}'):
        (run / "log.jsonl").write_text(f'{{"event": "started", "updates": 8}}\n{line}\n', encoding="utf-8")
        with pytest.raises(StageError, match=r"log\.jsonl:2: not an event of a training"):
            read_log(run / "log.jsonl")
    (run / "log.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StageError, match=r"log\.jsonl: not a training's log"):
        read_log(run / "log.jsonl")


def test_a_training_that_was_killed_is_not_told_as_running(run: Path) -> None:
    write(run, RUNNING)
    result = call("watch", run, "--once", run / "now.html")
    assert result.exit_code == 0, result.output
    assert "update 4 of 8, epoch 1; no process trains here now: killed, or on another machine" in result.stdout
    with one_at_a_time(run, "another training"):
        assert "update 4 of 8, epoch 1, 1 min 30 s left" in call("watch", run, "--once", run / "now.html").stdout
