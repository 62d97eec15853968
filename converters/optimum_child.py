"""What is asked of optimum-onnx, in whichever environment has it.

`converters/optimum_python.py` gives this text to another interpreter, where none of our packages may be installed and
Python may be older: it imports nothing of ours, and optimum only where it exports. Here it is a module like any other.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

PACKAGES = ("optimum", "optimum-onnx")  # the second alone lacks optimum.exporters
NEEDED = (*PACKAGES, "transformers", "torch")
TOLD = (*NEEDED, "onnx")


def hindrance() -> str:
    """Return why optimum-onnx cannot be used in this environment; empty where it can."""
    there = versions()
    if gone := [package for package in NEEDED if package not in there]:
        return f"{gone[0]} is not installed"
    return "; ".join(filter(None, map(_unmet, PACKAGES)))


def _unmet(package: str) -> str:
    """Return what a package wants of transformers and the environment has not, empty for nothing."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires(package) or ():
        wanted = Requirement(text)
        if wanted.name != "transformers" or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        here = importlib.metadata.version("transformers")
        if not wanted.specifier.contains(here, prereleases=True):
            version = importlib.metadata.version(package)
            return f"{package} {version} wants transformers {wanted.specifier}, here is {here}"
    return ""


def versions() -> dict[str, str]:
    """Return package to version of what takes part in an export."""
    found = {}
    for package in TOLD:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def export(model: str, folder: str, task: str, opset: int) -> dict[str, Any]:
    """Write a model's graphs into a folder as `optimum-cli export onnx` does, without its validation.

    Returns:
        `{"files", "seconds"}`: names of the graphs; seconds from the directory to the files, imports left out.
    """
    from optimum.exporters.onnx import main_export  # pyright: ignore[reportMissingImports]

    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main_export(model, output=folder, task=task, opset=opset, local_files_only=True, do_validation=False)
    seconds = time.perf_counter() - began
    return {"files": sorted(path.name for path in Path(folder).glob("*.onnx")), "seconds": round(seconds, 2)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a request asks for; `{"hindrance"}` where this environment cannot, `{"failed"}` where it failed."""
    if why := hindrance():
        return {"hindrance": why}
    found: dict[str, Any] = {"versions": versions()}
    if "export" not in request:
        return found
    try:
        return found | export(**request["export"])
    except Exception as error:  # whatever the exporters below it raise
        return found | {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def main(request_file: str, answer_file: str) -> None:
    """Answer the request of one file in another."""
    os.dup2(2, 1)  # exporters print
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    Path(answer_file).write_text(json.dumps(answer(request)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
