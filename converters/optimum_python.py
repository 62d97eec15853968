"""optimum-onnx in an environment of its own: another interpreter answers what `converters/optimum_child.py` asks.

optimum-onnx 0.1.0 wants transformers below 4.58, so it cannot stand beside this package's own transformers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from converters import optimum_child
from weights_bridge.errors import StageError
from weights_bridge.files import read_json

OPTION = "--optimum-python"
HINT = (
    f"{OPTION} wants the bin/python of an environment with optimum-onnx: `python -m venv ENV`, then "
    "`ENV/bin/pip install torch optimum-onnx onnx onnxruntime`"
)
ASKED_SECONDS = 60  # for what is no export; metadata alone is read
OURS = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")  # where this interpreter finds its packages
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}


def interpreter(named: str) -> Path:
    """Return the program that a user named, a path or a name that the shell would find.

    Its links are not followed: by the place of its link an interpreter knows which environment it belongs to.

    Raises:
        StageError: there is none.
    """
    if Path(named).is_dir():
        raise StageError(f"{OPTION} {named}: is a folder", hint=HINT)
    found = shutil.which(named)
    if found is None:
        raise StageError(f"{OPTION} {named}: no program of this name that may be run", hint=HINT)
    return Path(found).absolute()


def require_optimum(named: str) -> dict[str, str]:
    """Return package to version of an interpreter's environment.

    Raises:
        StageError: it is no Python, or its environment cannot export with optimum-onnx.
    """
    found = ask(named, {})
    if "hindrance" in found:
        raise StageError(f"{OPTION} {named}: {found['hindrance']}", hint=HINT)
    return found["versions"]


def ask(named: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return what an interpreter answers to `optimum_child.answer(request)`.

    Args:
        named: the interpreter; empty for this one.
        request: what JSON can hold; paths are whole.

    Raises:
        StageError: it cannot be run, or it ends without an answer.
    """
    python = interpreter(named) if named else Path(sys.executable)
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-optimum-") as work:
        asked, answered = Path(work) / "request.json", Path(work) / "answer.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        code = Path(optimum_child.__file__).read_text(encoding="utf-8")
        words = [str(python), "-c", code, str(asked), str(answered)]  # a file's folder would be searched for modules
        said = _run(words, named, work, None if "export" in request else ASKED_SECONDS)
        if not answered.is_file():
            raise StageError(f"{OPTION} {python}: {said}", hint=HINT)
        return read_json(answered)


def _run(words: list[str], named: str, work: str, seconds: float | None) -> str:
    """Run a command in an empty folder and return what its end tells, for when there is no answer."""
    # this interpreter needs PYTHONPATH to find again what it found
    kept = {key: value for key, value in os.environ.items() if not named or key not in OURS}
    given: dict[str, Any] = {"cwd": work, "env": kept | QUIET, "timeout": seconds, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **given)
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} seconds"
    except OSError as error:
        return f"cannot be run: {error.strerror or error}"
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}; did memory run out?"
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["without a word"])[-1]
    return f"ended with code {done.returncode} and no answer: {last}"
