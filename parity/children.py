"""Child processes: each framework runs in one of its own (memory, library clashes, kill safety).

A child is a module with `answer(request) -> None`, started as `python -m parity.children MODULE REQUEST.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mlx_sentis.blas import for_children
from weights_bridge.errors import BudgetMissedError, StageError, not_installed

NO_BARS = {"TQDM_DISABLE": "1"}  # any value disables, "0" too: stages that show bars must not have it
ERRORS = {error.exit_code: error for error in (StageError, BudgetMissedError)}
ROOT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """Return the environment in which a child finds our packages, installed or not, quietly."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"TRANSFORMERS_NO_ADVISORY_WARNINGS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return (
        for_children(os.environ)
        | os.environ
        | {"PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false"}
        | quiet
    )


def run_child(module: str, request: dict[str, Any], request_file: Path) -> None:
    """Run `module.answer(request)` in a process of its own.

    Args:
        module: the dotted name.
        request: what JSON can hold; it names the files to read and to write.
        request_file: where to put the request; its folder must exist.

    Raises:
        StageError: the child said so, or it died; with its last words.
    """
    request_file.write_text(json.dumps(request), encoding="utf-8")
    command = [sys.executable, "-m", "parity.children", module, str(request_file)]
    done = subprocess.run(command, env=environment() | NO_BARS, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return
    if done.returncode in ERRORS and "\nchild error: " in "\n" + done.stderr:
        said = json.loads(("\n" + done.stderr).rpartition("\nchild error: ")[2].splitlines()[0])
        raise ERRORS[done.returncode](said["message"], hint=said["hint"])
    if done.returncode < 0:
        raise StageError(f"{module}: ended by signal {-done.returncode}", hint="close other programs: memory ran out?")
    raise RuntimeError(f"{module} failed:\n{done.stderr}")


def main(module: str, request_file: str) -> int:
    """Answer one request; a `StageError` goes back as JSON on stderr."""
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    try:
        importlib.import_module(module).answer(request)
    except StageError as error:
        return _say(error)
    except ModuleNotFoundError as error:
        return _say(not_installed(error))
    return 0


def _say(error: StageError) -> int:
    print("child error: " + json.dumps({"message": error.message, "hint": error.hint}), file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
