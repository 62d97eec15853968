"""Which way a model is exported, and why: our own wrapper, piece by piece, or optimum-onnx where that is installed.

The wrapper is the default wherever there is one, because it decides inputs and outputs and keeps torch's names, so that
tuned weights can be put into the same graph. optimum-onnx knows more architectures; what it writes is checked against
torch before it is kept, and holds no contract of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from converters import families, optimum_child
from converters.optimum_python import OPTION, require_optimum
from weights_bridge.errors import StageError, unknown_name
from weights_bridge.files import read_json
from weights_bridge.model_folder import open_model_folder

WRAPPER, OPTIMUM = "wrapper", "optimum"
PATHS = ("auto", WRAPPER, OPTIMUM)
BESIDE = f"optimum-onnx 0.1.0 wants transformers below 4.58: it cannot stand beside this package's, see {OPTION}"


@dataclass(frozen=True)
class Route:
    """A choice.

    Attributes:
        path: `wrapper` or `optimum`.
        reason: why.
        others: every other path to why it was not taken.
    """

    path: str
    reason: str
    others: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """What a person reads: the choice, and why a better one was not to be had; the manifest names all."""
        better = PATHS[1 : PATHS.index(self.path)]
        others = "".join(f"; not {path}: {self.others[path]}" for path in better if path in self.others)
        return f"path {self.path}: {self.reason}{others}"


def choose(model: Path, asked: str = "auto", python: str = "") -> Route:
    """Choose how a model directory is exported.

    Args:
        model: the directory.
        asked: of `PATHS`.
        python: an interpreter that has optimum-onnx; empty for this one.

    Raises:
        StageError: no such path, none that can be taken, or an interpreter that is not fit.
    """
    if asked not in PATHS:
        raise unknown_name("path", asked, PATHS)
    if not (model / "config.json").is_file():
        open_model_folder(model)  # says what is wrong with it
    config = read_json(model / "config.json")
    model_type = str(config.get("model_type", "")) if isinstance(config, dict) else ""
    known = require_optimum(python) if python else optimum_child.versions()
    hindrances = {WRAPPER: _no_wrapper(model_type), OPTIMUM: "" if python else no_optimum()}
    wanted = [WRAPPER, OPTIMUM] if asked == "auto" else [asked]
    taken = next((path for path in wanted if not hindrances[path]), None)
    if taken is None:
        told = "; ".join(f"{path}: {hindrances[path]}" for path in wanted)
        raise StageError(f"{model}: no way to export it: {told}", hint="`mlx-sentis families` lists what has a wrapper")
    unneeded = "not asked for" if asked != "auto" else "not needed"
    others = {path: why or unneeded for path, why in hindrances.items() if path != taken}
    reason = f"{model_type} has one here: each distinct layer traced once, tuned weights fit the same graph"
    return Route(taken, reason if taken == WRAPPER else f"{in_a_line(known)}, checked against torch", others)


def _no_wrapper(model_type: str) -> str:
    """Return why there is no wrapper for an architecture; empty where there is."""
    known = [row["architecture"] for row in families.table() if "export" in row["stages"]]
    if model_type in known:
        return ""
    return f"none for {model_type}" if model_type else "none for a directory without model_type"


def no_optimum() -> str:
    """Return why optimum-onnx cannot be used here; empty where it can."""
    why = optimum_child.hindrance()
    return f"{why} ({BESIDE})" if why else ""


def in_a_line(versions: Mapping[str, str]) -> str:
    """Return packages with their versions in a line."""
    return ", ".join(f"{package} {version}" for package, version in versions.items())
