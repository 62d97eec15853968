"""Files appear whole or not at all: after an exception, a kill, a full disk and a failing rename."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import FULL

from weights_bridge import files
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, read_json, read_jsonl, sha256_of, write_json, write_jsonl

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def fill(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_hash_is_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000  # more than one piece
    (tmp_path / "x").write_bytes(content)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(content).hexdigest()
    assert files.sha256_of_text("東") == hashlib.sha256("東".encode()).hexdigest()


def test_a_file_has_no_name_before_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "x.txt"
    with files.written_whole(target) as beside:
        beside.write_text("new")
        assert not target.exists()
        assert beside.parent == target.parent
        assert beside.name.startswith(".")
    assert target.read_text() == "new"
    assert names(tmp_path) == ["deep", "deep/x.txt"]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_an_exception_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(type(error)), files.written_whole(tmp_path / "x.txt") as beside:
        beside.write_text("half")
        raise error
    assert (tmp_path / "x.txt").read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_an_exception_in_the_middle_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "out" / "old.json", 1)
    with pytest.raises(RuntimeError), folder_written_whole(tmp_path / "out") as new:
        (new / "half").write_text("half")
        raise RuntimeError
    assert names(tmp_path) == ["out", "out/old.json"]


def test_a_new_folder_replaces_the_old_one_and_does_not_mix_with_it(tmp_path: Path) -> None:
    write_json(tmp_path / "out" / "old.json", 1)
    with folder_written_whole(tmp_path / "out") as new:
        (new / "new.json").write_text("2")
        assert names(tmp_path / "out") == ["old.json"]
    assert names(tmp_path) == ["out", "out/new.json"]


def test_a_failing_last_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "out" / "old.json", 1)
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StageError, match="nothing was changed"), folder_written_whole(tmp_path / "out") as new:
        (new / "new.json").write_text("2")
    assert names(tmp_path) == ["out", "out/old.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from weights_bridge.files import folder_written_whole, written_whole
target = Path(sys.argv[2])
with {"file": written_whole, "folder": folder_written_whole}[sys.argv[1]](target) as new:
    (new / "half.bin" if new.is_dir() else new).write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_kill_in_the_middle_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    old = tmp_path / "out" if kind == "file" else tmp_path / "out" / "old.bin"
    old.parent.mkdir(exist_ok=True)
    old.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, kind, str(tmp_path / "out")], cwd=ROOT)
    assert killed.returncode == -9
    assert old.read_bytes() == b"old"
    seen = [name for name in names(tmp_path) if not name.startswith(".")]
    assert seen == (["out"] if kind == "file" else ["out", "out/old.bin"])


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(StageError) as caught, files.written_whole(tmp_path / "x.txt") as beside:
        fill(beside)
    assert caught.value.message == f"{tmp_path}/x.txt: cannot be written: the disk is full; nothing was changed"
    assert "free some room" in caught.value.hint
    assert names(tmp_path) == ["x.txt"]
    assert (tmp_path / "x.txt").read_text() == "old"


def test_a_full_disk_under_a_folder_names_the_folder_and_not_a_hidden_file(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught, folder_written_whole(tmp_path / "out") as new:  # noqa: SIM117
        with files.written_whole(new / "inner.json") as beside:
            fill(beside)
    assert caught.value.message == f"{tmp_path}/out: cannot be written: the disk is full; nothing was changed"
    assert names(tmp_path) == []


def test_a_really_full_disk_keeps_the_old_file(small_disk: Path) -> None:
    write_json(small_disk / "x.json", {"old": 1})
    with pytest.raises(StageError, match=FULL):
        write_json(small_disk / "x.json", {"new": "x" * 200_000})
    assert read_json(small_disk / "x.json") == {"old": 1}
    assert names(small_disk) == ["x.json"]


def test_a_folder_swap_that_was_killed_between_its_renames_is_undone(tmp_path: Path) -> None:
    out, cut = tmp_path / "out", tmp_path / ".out-x1"
    for place, text in ((cut / "old", "old"), (cut / "new", "half")):
        place.mkdir(parents=True)
        (place / "a.txt").write_text(text)
    assert files.bring_back(out)
    assert (out / "a.txt").read_text() == "old" and names(tmp_path) == ["out", "out/a.txt"]
    assert not files.bring_back(out)


def test_what_a_kill_left_aside_is_back_before_the_next_write_and_outlives_its_failure(tmp_path: Path) -> None:
    (tmp_path / ".out-x1" / "old").mkdir(parents=True)
    (tmp_path / ".out-x1" / "old" / "a.txt").write_text("old")
    with pytest.raises(KeyError), files.folder_written_whole(tmp_path / "out"):
        raise KeyError
    assert names(tmp_path) == ["out", "out/a.txt"]


def test_a_folder_that_is_there_is_never_replaced_by_what_a_kill_left(tmp_path: Path) -> None:
    (tmp_path / ".out-x1" / "old").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    assert not files.bring_back(tmp_path / "out")


@pytest.mark.parametrize("name", sorted(files.WRITTEN_BY))
def test_the_hint_of_a_cut_file_of_ours_names_what_makes_it_again(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"a": ')
    with pytest.raises(StageError, match=f"{name}:1: not JSON") as caught:
        read_json(tmp_path / name)
    assert caught.value.hint == files.WRITTEN_BY[name]


def test_a_folder_under_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (files.written_whole, folder_written_whole):
        with pytest.raises(StageError, match=r"cannot be written: (Not a directory|File exists)"):  # noqa: SIM117
            with place(tmp_path / "file" / "x"):
                pass


def test_a_fault_of_something_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"No such file or directory .*gone\.bin"):  # noqa: SIM117
        with folder_written_whole(tmp_path / "out"):
            (tmp_path / "gone.bin").read_bytes()


def test_json_keeps_real_characters_and_ends_its_last_line(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"name": "東京 ñ"})
    assert (tmp_path / "x.json").read_bytes() == '{\n  "name": "東京 ñ"\n}\n'.encode()
    assert read_json(tmp_path / "x.json") == {"name": "東京 ñ"}


def test_a_value_json_cannot_hold_writes_nothing(tmp_path: Path) -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "x.json", {"a": bad})
        with contextlib.suppress(ValueError):
            write_jsonl(tmp_path / "x.jsonl", [{"a": 1}, {"a": bad}])
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "x.json: no such file"),
        (b'{"a": 1,\n "b" 2}', "x.json:2: not JSON"),
        (b"", "x.json:1: not JSON"),
        (b'{"a": "\xff"}', "x.json: not UTF-8"),
    ],
)
def test_unreadable_json_is_one_line_with_its_place(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(StageError) as caught:
        read_json(tmp_path / "x.json")
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[" * 100_000, "recursion"), (b"1" * 5000, "4300 digits"), (None, "Is a directory")],
    ids=["too deep", "too long a number", "a folder"],
)
def test_json_that_python_does_not_read_is_one_line_too(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is None:
        (tmp_path / "x.json").mkdir()
    else:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(StageError, match=rf"x\.json: not read: .*{message}") as caught:
        read_json(tmp_path / "x.json")
    assert caught.value.hint and "\n" not in caught.value.message


def test_lines_are_cut_at_newlines_only(tmp_path: Path) -> None:
    rows = [{"text": "one\u2028two\x85three\r"}, {"text": "four"}]
    write_jsonl(tmp_path / "x.jsonl", rows)
    assert read_jsonl(tmp_path / "x.jsonl") == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b'{"a": 1}\nbroken\n', r"x\.jsonl:2: not JSON"), (b"\xff\n", "UTF-8")],
)
def test_unreadable_lines_are_one_line_with_their_number(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(StageError, match=message):
        read_jsonl(tmp_path / "x.jsonl")
