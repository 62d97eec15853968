"""Toy models for every folder of tests, each made once."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlx_sentis.blas import activate
from mlx_sentis.demo.toy import write_toy_model

# toy matrices gain nothing from a second thread and lose up to a second per forward pass at barriers on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")
activate()  # before any test imports MLX


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the directory of a toy model by its `model_type`. Copy it before changing it."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = write_toy_model(tmp_path_factory.mktemp("toy") / model_type, model_type)
        return made[model_type]

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A place that holds 64 KiB: a file system of its own where we may mount one, else files of at most that size.

    A write beyond it raises what `helpers.FULL` matches.
    """
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limits[1]))
    yield place
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if mounted:
        subprocess.run(["umount", place], check=True)
