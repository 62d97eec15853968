"""The run folder: what one stage hands to the next, with hashes.

A stage opens with `RunFolder.stage(name, inputs=…)`, which checks the SHA-256 of every input that an earlier
stage of this run recorded as its output, and closes by appending its own entry to `manifest.json`. A stage that
raises leaves no entry, so the manifest never speaks of files that are not there.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weights_bridge.compare import GateResult
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import bring_back, read_json, sha256_of, write_json

SCHEMA = "mlx-sentis/manifest/1"
REPORTED_PACKAGES = ("mlx-sentis", "mlx", "mlx-lm", "torch", "transformers", "onnx", "onnxruntime", "numpy")


@dataclass
class Stage:
    """One stage while it runs.

    Attributes:
        run: the run folder.
        name: the manifest's key, for example `export`.
        outputs: files and folders to hash when the stage ends well.
        facts: figures for the manifest (seed, counts, losses).
    """

    run: RunFolder
    name: str
    outputs: list[Path] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def wrote(self, *paths: Path) -> None:
        """Declare files or folders that this stage wrote."""
        self.outputs.extend(paths)


class RunFolder:
    """A run folder and its manifest.

    Args:
        root: the folder, `runs/<name>`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def existing(cls, root: Path) -> RunFolder:
        """Open a run folder that must be there.

        Raises:
            StageError: no folder, or nothing in it says that it is a run.
        """
        if not (root / "manifest.json").is_file():
            raise StageError(f"{root}: not a run folder (no manifest.json)", hint="give the folder `run --out` wrote")
        return cls(root)

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest; an empty one when the run is new."""
        path = self.path("manifest.json")
        manifest = read_json(path) if path.exists() else {"schema": SCHEMA, "stages": {}}
        if (
            not isinstance(manifest, dict)
            or manifest.get("schema") != SCHEMA
            or not _are_stages(manifest.get("stages"))
        ):
            raise StageError(f"{path}: not a manifest of schema {SCHEMA}", hint="run into a new folder with --out")
        return manifest

    def recorded_hashes(self) -> dict[str, str]:
        """Return path (relative, POSIX) to SHA-256 of everything this run wrote; the last writer wins."""
        hashes: dict[str, str] = {}
        for entry in self.manifest()["stages"].values():
            hashes |= entry["outputs"]
        return hashes

    def altered(self, paths: Iterable[Path] | None = None) -> list[GateResult]:
        """Compare files with the manifest and return one failed result per file that is gone or differs.

        Args:
            paths: files or folders inside the run; None for everything recorded.
        """
        recorded = self.recorded_hashes()
        names = sorted(recorded if paths is None else self._recorded_under(paths, recorded))
        found = []
        for name in names:
            path = self.root / name
            if not path.is_file():
                found.append(GateResult(f"file {name}", False, "missing", where=name, detail="recorded, not there"))
            elif (digest := sha256_of(path)) != recorded[name]:
                detail = f"sha256 found {digest[:12]}…, recorded {recorded[name][:12]}…"
                found.append(GateResult(f"file {name}", False, "altered", where=name, detail=detail))
        return found

    def is_recorded(self, path: Path) -> bool:
        """Tell whether the manifest has a file, or something in a folder, as an output; it may be gone."""
        return bool(self._recorded_under([path], self.recorded_hashes()))

    def stale(self) -> list[str]:
        """Return the files of data and prompt contract that are others than those the last training read."""
        trained = self.manifest()["stages"].get("train", {"inputs": {}})["inputs"]
        now = self.recorded_hashes()
        names = {name for name in [*trained, *now] if _decides_rows(name)} if trained else set()
        return sorted(name for name in names if name in now and now[name] != trained.get(name))

    def require_trained_data(self) -> None:
        """Refuse to read data as that of a training which read other data: a held-out row may have been trained.

        Raises:
            StageError: the data was prepared after the training; the files are named.
        """
        if stale := self.stale():
            hint = f"run `mlx-sentis train --data {self.root} --out {self.root}`, or restore the data it was trained on"
            raise all_at_once(f"{self.root}: the data was prepared after the training:", stale, hint=hint)

    @contextmanager
    def stage(self, name: str, inputs: Iterable[Path] = (), *, seed: int | None = None) -> Iterator[Stage]:
        """Run one stage: check its inputs, time it, record its outputs.

        Args:
            name: the manifest's key.
            inputs: files or folders it reads; what lies outside the run folder is hashed but cannot be checked.
            seed: the random seed, if it uses one.

        Raises:
            StageError: an input is missing or differs from what the manifest says.
        """
        inputs = list(inputs)
        for path in inputs:
            bring_back(path)
        if missing := [str(path) for path in inputs if not path.exists() and not self.is_recorded(path)]:
            raise all_at_once(f"stage {name}: inputs are missing:", missing, hint="run the earlier stages first")
        self.require_unaltered(f"stage {name}", inputs)
        started = time.monotonic()
        read = self._hashes(inputs)  # before the work: a file that changes meanwhile is not what was read
        stage = Stage(self, name)
        yield stage
        entry = {
            "inputs": read,
            "outputs": self._hashes(stage.outputs),
            "versions": versions(),
            "seed": seed,
            "seconds": round(time.monotonic() - started, 3),
            "peak_memory_gib": round(peak_memory_gib(), 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "facts": stage.facts,
        }
        manifest = self.manifest()
        manifest["stages"].pop(name, None)  # a repeated stage moves to the end: the last writer wins
        manifest["stages"][name] = entry
        write_json(self.path("manifest.json"), manifest)

    def require_unaltered(self, who: str, paths: Iterable[Path]) -> None:
        """Require that files are what an earlier stage recorded.

        Args:
            who: wants to read them; begins the message.
            paths: files or folders; what lies outside of the run cannot be checked.

        Raises:
            StageError: files are gone or differ; all at once.
        """
        if changed := self.altered(paths):
            lines = [f"{result.where}: {result.detail or result.reason}" for result in changed]
            hint = "run the stage that writes them again, or restore the files"
            raise all_at_once(f"{who}: files changed since they were recorded:", lines, hint=hint)

    def _recorded_under(self, paths: Iterable[Path], recorded: Iterable[str]) -> list[str]:
        """Return what is recorded at or below some paths, whether it is still there or not."""
        root = self.root.resolve()
        wanted = [path.resolve() for path in paths]
        return [name for name in recorded if any((root / name).is_relative_to(path) for path in wanted)]

    def _hashes(self, paths: Iterable[Path]) -> dict[str, str]:
        root = self.root.resolve()
        hashes = {}
        for file in _files(paths):
            path = file.resolve()
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            hashes[name] = sha256_of(path)
        return hashes


def _are_stages(stages: Any) -> bool:
    """Tell whether a manifest's stages have the form in which they are written."""
    return isinstance(stages, dict) and all(
        isinstance(entry, dict)
        and all(isinstance(entry.get(side), dict) for side in ("inputs", "outputs", "facts"))
        and all(isinstance(text, str) for side in ("inputs", "outputs") for text in entry[side].values())
        for entry in stages.values()
    )


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            # what starts with a dot is half-written, or some tool's own
            found += sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(path)))
        else:
            found.append(path)
    return found


def _decides_rows(name: str) -> bool:
    return name == "prompt_contract.json" or (name.startswith("data/") and name.endswith(".jsonl"))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide numbers."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def peak_memory_gib() -> float:
    """Return the largest resident size so far in GiB, of this process or of any child that has ended."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is bytes on macOS, KiB on Linux
    own, children = (
        resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    status = Path("/proc/self/status")
    if status.is_file():  # Linux keeps ru_maxrss over exec: it starts at the size of this one's parent
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)
        own = int(found[1]) * 1024 if found else own
    return max(own, children) / 2**30


def user_cache() -> Path:
    """Return the folder for models made once and shared by runs; `MLX_SENTIS_CACHE` overrides it."""
    if chosen := os.environ.get("MLX_SENTIS_CACHE"):
        return Path(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "mlx-sentis"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "mlx-sentis"
