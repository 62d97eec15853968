"""Toy models and exports for every folder of tests, each made once."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import Exported, read_export

from mlx_sentis.blas import activate
from mlx_sentis.demo.toy import write_toy_model

# toy matrices gain nothing from a second thread and lose up to a second per forward pass at barriers on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")
activate()  # before any test imports MLX

# What several files wait for is made first, by one of them; the many short files come last and fill what is left.
FIRST = ("pipeline/test_real_model.py", "pipeline/test_going_on.py", "converters/", "parity/", "pipeline/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of `FIRST` before the others: `make test` deals whole files to its processes in this order."""
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(tests).as_posix()
        return next((at for at, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return the folder that `make(folder)` filled, made once for all worker processes of a session, by its name."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
    shared.mkdir(exist_ok=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, whole = shared / name, shared / f"{name}.whole"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                whole.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the directory of a toy model by its `model_type`. Copy it before changing it."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = write_toy_model(tmp_path_factory.mktemp("toy") / model_type, model_type)
        return made[model_type]

    return make


@pytest.fixture(scope="session")
def exported(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., Exported]:
    """exported("llama", batch="dynamic") -> the toy export; each combination of settings and seed is made once."""
    from converters import tracing

    traced: dict[Any, Any] = {}

    def remembering(model_type: str, afresh: bool) -> Callable[..., Any]:
        def trace(pieces: Any, opset: int) -> Any:
            key = (model_type, opset)
            if afresh or key not in traced:
                traced[key] = tracing.trace(pieces, opset)
            return traced[key]

        return trace

    def export(model_type: str, seed: int = 0, **settings: Any) -> Exported:
        from converters.export import export_model
        from weights_bridge.settings import ExportSettings

        def make(folder: Path) -> None:
            model = write_toy_model(folder / "model", model_type, seed=seed)
            with pytest.MonkeyPatch.context() as patch:
                # batch and dtype come after tracing; a plain export traces afresh each time
                patch.setattr("converters.export.trace", remembering(model_type, afresh=not settings))
                export_model(model, folder / "base.onnx", ExportSettings(**settings), folder / "contract.json")

        name = "-".join(["export", model_type, str(seed), *(f"{key}-{settings[key]}" for key in sorted(settings))])
        folder = made_once(name, make)
        return read_export(folder / "model", folder)

    return export


@pytest.fixture(scope="session")
def reference_logits() -> Callable[[Path, np.ndarray], np.ndarray]:
    """Logits [B, T, V] of transformers' own model with eager attention in fp32."""

    def run(model: Path, ids: np.ndarray) -> np.ndarray:
        import torch
        from transformers import AutoModelForCausalLM

        whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            return whole(torch.from_numpy(ids)).logits.numpy()

    return run


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
