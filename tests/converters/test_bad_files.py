"""Damaged and hostile model files through every command that reads one: a line, no traceback, nothing else touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bad_files import MADE, NO_MODEL, SECRET, constant_of_2_gb
from click.testing import Result
from helpers import call

MODEL, OUT, FIXTURE = "{model}", "{out}", "{fixture}"
WRITING = {
    "fix": ["fix", MODEL],
    "extract": ["graph", "extract", MODEL, "--to", "y"],
    "cut": ["graph", "cut", MODEL, "--at", "y"],
    "fix-shape": ["graph", "fix-shape", MODEL, "--input", "x=2,8"],
    "rename-io": ["graph", "rename-io", MODEL, "--name", "x=z"],
    "inline": ["graph", "inline", MODEL],
    "inject-kv": ["graph", "inject-kv", MODEL],
    "hoist-state": ["graph", "hoist-state", MODEL, "--time", "frames"],
}
READING = {
    "scan": ["scan", MODEL],
    "explain": ["explain", MODEL],
    "info": ["graph", "info", MODEL],
    "parity": ["parity", "--model", MODEL, "--fixture", FIXTURE],
    "parity ab": ["parity", "--model", MODEL, "--fixture", FIXTURE, "--edge", "ab", "-q"],
}
COMMANDS = READING | {name: [*words, "--out", OUT] for name, words in WRITING.items()}


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Return every file's bytes, and where links lead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file() and path.stat().st_size < 1 << 20:
            found[str(path)] = path.read_bytes()
        else:
            found[str(path)] = ""
    return found


def checked(command: str, model: Path, out: Path) -> Result:
    """Call a command and check that it ends as one may."""
    places = {MODEL: str(model), OUT: str(out / "out.onnx"), FIXTURE: str(out.parent / "f.npz")}
    words = [places.get(word, word) for word in COMMANDS[command]]
    answer = call(*words)
    shown = answer.output
    assert answer.exception is None or isinstance(answer.exception, SystemExit), (command, answer.exception)
    assert answer.exit_code in (0, 1, 3), shown
    assert "Traceback" not in shown and "\x1b[31m" not in shown
    if answer.exit_code == 1:
        lines = answer.stderr.strip().split("\n")
        assert lines[0].startswith("error: ") and all(line.startswith("  ") for line in lines[1:]), lines
        assert len(lines) <= 3 and model.name in lines[0], (command, lines)
    assert answer.exit_code == 0 or command.startswith("parity") or model.name in shown, (command, shown)
    if answer.exit_code and command in WRITING:
        assert list(out.iterdir()) == [], command
    return answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.bin").write_bytes(SECRET)
    np.savez(tmp_path / "f.npz", **{"in::x": np.ones((2, 8), np.float32), "out::y": np.ones((2, 8), np.float32)})
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("name", list(MADE))
def test_every_command_tells_it_in_a_line_and_touches_nothing_else(folder, tmp_path, name):
    MADE[name](folder / "m.onnx")
    before = snapshot(tmp_path)
    for command in COMMANDS:
        out = tmp_path / f"out-{command}"
        out.mkdir()
        answer = checked(command, folder / "m.onnx", out)
        assert answer.exit_code == 1 or name not in NO_MODEL, (command, answer.output)
        assert SECRET not in b"".join(path.read_bytes() for path in out.iterdir())
        kept = {path: held for path, held in snapshot(tmp_path).items() if not path.startswith(str(tmp_path / "out-"))}
        assert kept == before, (command, answer.output)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_constant_of_2_gb_is_a_line(folder, tmp_path, command):
    path, out = folder / "m.onnx", tmp_path / "out"
    out.mkdir()
    constant_of_2_gb(path)
    answer = checked(command, path, out)
    assert answer.exit_code == 3 if command == "scan" else answer.exit_code in (0, 1, 3)
