"""Fixtures for the parity harness: `fixtures.json` and raw input bytes, in a folder that Unity does not import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.npz import read_npz
from weights_bridge.sentis_dump import FIXTURES_SCHEMA, fixture_sha256, input_order, raw_bytes

FOLDER = "Parity~"  # Unity imports nothing from folders whose names end in ~
NAME = "fixtures.json"
HINT = "`mlx-sentis parity RUN --edge a` writes the fixtures again"


@dataclass(frozen=True)
class HarnessModel:
    """A model that the harness runs.

    Attributes:
        file: relative to the folder of `fixtures.json`.
        sha256: of the file.
        fixtures: fixture name to inputs.
        side_files: names of files with external data, beside the model.
        made: whether the inputs lie nowhere else: then `NAME.npz` holds them too, for `parity --fixture`.
    """

    file: str
    sha256: str
    fixtures: Mapping[str, Mapping[str, Array]]
    side_files: Sequence[str] = field(default=())
    made: bool = False


def run_fixtures(folder: Path) -> dict[str, dict[str, Array]]:
    """Return the inputs of a run's fixtures by name.

    Args:
        folder: `onnx/fixtures`.

    Raises:
        StageError: no index, or an archive of it is missing or damaged.
    """
    index = read_json(folder / "index.json")
    try:
        return {entry["name"]: _inputs_of(folder / entry["npz"]) for entry in index["fixtures"]}
    except (KeyError, TypeError):
        raise StageError(f"{folder / 'index.json'}: not an index of fixtures", hint=HINT) from None


def _inputs_of(path: Path) -> dict[str, Array]:
    return {key[4:]: array for key, array in read_npz(path, HINT).items() if key.startswith("in::")}


def write_parity_inputs(folder: Path, models: Sequence[HarnessModel], sentis: str) -> int:
    """Write `fixtures.json` and the raw bytes, the whole folder or nothing.

    Args:
        folder: `Parity~` of a kit; replaced.
        models: what the harness shall run.
        sentis: the package version they were made for.

    Returns:
        How many fixtures there are.

    Raises:
        StageError: the disk is full or the folder cannot be written.
    """
    with folder_written_whole(folder) as new:
        entries = [_model(new, model, at) for at, model in enumerate(models)]
        write_json(new / NAME, {"schema": FIXTURES_SCHEMA, "sentis": sentis, "models": entries})
    return sum(len(model.fixtures) for model in models)


def _model(new: Path, model: HarnessModel, number: int) -> dict[str, Any]:
    place = "" if number == 0 else f"{number}-"  # two models may have fixtures of one name
    for name, inputs in model.fixtures.items() if model.made else ():
        np.savez(new / f"{name}.npz", **{f"in::{key}": array for key, array in inputs.items()})  # pyright: ignore[reportArgumentType]
    fixtures = [_fixture(new, name, f"{place}{name}", inputs) for name, inputs in model.fixtures.items()]
    listed = {"side_files": list(model.side_files), "fixtures": fixtures}
    return {"file": model.file, "sha256": model.sha256} | listed


def _fixture(new: Path, name: str, place: str, inputs: Mapping[str, Array]) -> dict[str, Any]:
    rows = []
    for at, key in enumerate(input_order(inputs)):
        array = inputs[key]
        file = f"{place}/{at}.bin" if array.size else None
        if file:
            (new / place).mkdir(exist_ok=True)
            (new / file).write_bytes(raw_bytes(array))
        rows.append({"name": key, "dtype": array.dtype.name, "shape": list(array.shape), "file": file})
    return {"name": name, "sha256": fixture_sha256(inputs), "inputs": rows}
