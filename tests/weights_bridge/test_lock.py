"""One writer at a time for a folder, whatever ended the one before."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weights_bridge import lock
from weights_bridge.errors import StageError
from weights_bridge.lock import is_held, one_at_a_time

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from weights_bridge.lock import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), "another training"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_gone_even_by_a_kill(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(StageError, match=f"{tmp_path}: another training is writing to this folder already"),
            one_at_a_time(tmp_path, "another training"),
        ):
            pass
        assert is_held(tmp_path)
        other.kill()
    with one_at_a_time(tmp_path, "another training"):
        assert list(tmp_path.iterdir()) == []  # no file to forget
        assert is_held(tmp_path)
    assert not is_held(tmp_path)
    assert not is_held(tmp_path / "nowhere")


def test_the_process_that_holds_a_folder_may_take_it_again(tmp_path: Path) -> None:
    with one_at_a_time(tmp_path, "one"), one_at_a_time(tmp_path / "." / "", "two"):
        pass


def test_a_folder_that_was_made_for_nothing_goes_again_and_what_was_there_stays(tmp_path: Path) -> None:
    with one_at_a_time(tmp_path / "runs" / "npc", "another training"):
        assert (tmp_path / "runs" / "npc").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").mkdir()
    with one_at_a_time(tmp_path / "runs", "another training"):
        pass
    assert (tmp_path / "runs").is_dir()


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(StageError, match="run: cannot be written"), one_at_a_time(tmp_path / "run", "another training"):
        pass


def test_a_file_system_without_locks_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with one_at_a_time(tmp_path / "new", "another training"):
        assert (tmp_path / "new").is_dir()


def test_who_looks_whether_a_folder_is_held_does_not_hinder_who_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(lock, "PAUSE", 0)
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: os.close(looking))
    with one_at_a_time(tmp_path, "another training"):
        assert is_held(tmp_path)
