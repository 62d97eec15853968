"""Running one contender in a process of its own: its figures, and the largest resident size the process reached."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parity.children import run_child
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, write_json
from weights_bridge.run_folder import peak_memory_gib


def run_contender(name: str, **arguments: Any) -> dict[str, Any]:
    """Return what `benchmarks.contenders.<name>.measure(**arguments)` measured, and `peak_memory_gib`.

    Args:
        name: the module.
        arguments: what JSON can hold.

    Raises:
        StageError: the contender said so, or its process was killed.
    """
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        out = Path(work) / "figures.json"
        request = {"module": f"benchmarks.contenders.{name}", "arguments": arguments, "out": str(out)}
        run_child(__name__, request, Path(work) / "request.json")
        return read_json(out)


def run_rival(name: str, **arguments: Any) -> dict[str, Any]:
    """Like `run_contender`, but a rival that cannot run is a row with `not_measured`, not the end of the benchmark."""
    try:
        return run_contender(name, **arguments)
    except StageError as error:
        return {"not_measured": error.message}


def answer(request: Mapping[str, Any]) -> None:
    """Measure in this process and write the figures (the child's side)."""
    os.dup2(2, 1)  # stdout is the command's answer; some contenders print there
    measure = importlib.import_module(request["module"]).measure
    figures = measure(**request["arguments"])
    write_json(Path(request["out"]), figures | {"peak_memory_gib": round(peak_memory_gib(), 3)})
