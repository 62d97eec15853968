"""Which files of a directory are a model's weights, and whether they may be trusted.

Read as transformers reads: one `model.safetensors`, else the shards that `model.safetensors.index.json` names, else
every safetensors file. Never a pickle, and nothing that a link or a name in the index points to elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json
from weights_bridge.safetensors_reader import SafetensorsFile, open_safetensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model, sorted by name.

    Raises:
        StageError: there is none, one that is named is missing, or one lies outside of the directory.
    """
    if (folder / SINGLE).exists() or (folder / SINGLE).is_symlink():
        names = [SINGLE]
    elif (folder / INDEX).exists():
        names = sorted(set(weight_map(folder).values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise _no_weights(folder)
    faults = [fault for name in names for fault in [_name_fault(name) or _place_fault(folder, name)] if fault]
    faults += _missing_shards(names)
    if faults:
        raise all_at_once(f"{folder}: weight files cannot be taken:", faults, hint="fetch the whole directory again")
    return [folder / name for name in names]


def open_weights(folder: Path) -> dict[str, SafetensorsFile]:
    """Return tensor name to the checked file that holds it, in file order.

    Raises:
        StageError: a header is faulty, a tensor stands in two files, or index and files disagree; all at once.
    """
    where: dict[str, SafetensorsFile] = {}
    faults: list[str] = []
    for path in weight_files(folder):
        try:
            file = open_safetensors(path)
        except StageError as error:
            faults.append(error.message.replace("\n", "\n  "))
            continue
        faults += [f"{n}: in {where[n].path.name} and in {path.name}" for n in file.entries if n in where]
        where |= dict.fromkeys(file.entries, file)
    if not faults and (folder / INDEX).exists() and not (folder / SINGLE).exists():
        faults = _index_faults(weight_map(folder), where)
    if faults:
        raise all_at_once(f"{folder}: weight files are not whole:", faults, hint="fetch or copy them again")
    return where


def require_inside(folder: Path, name: str) -> Path:
    """Return `folder/name`.

    Raises:
        StageError: it is a link to a place outside of the directory.
    """
    if fault := _link_fault(folder, name):
        raise StageError(f"{folder}/{fault}", hint="put the file itself there")
    return folder / name


def _no_weights(folder: Path) -> StageError:
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        hint = "convert them first: `mlx-sentis bridge DIR --to torch --out NEW --allow-pickle` runs no code from them"
        return StageError(f"{folder}: no *.safetensors file, and {', '.join(pickles[:3])} is pickle", hint=hint)
    hint = "pickle checkpoints (.bin, .pt) are not read; convert them to safetensors first"
    return StageError(f"{folder}: no *.safetensors file", hint=hint)


def weight_map(folder: Path, index: str = INDEX) -> dict[str, str]:
    """Return tensor name to shard name as a directory's index has it.

    Raises:
        StageError: it is no index, or lies outside of the directory.
    """
    path = require_inside(folder, index)
    document: Any = read_json(path)
    names: Any = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise StageError(f"{path}: no weight_map of tensor names to file names", hint="fetch the index again")
    return names


def _name_fault(name: str) -> str:
    parts = {PurePosixPath(name).name, PureWindowsPath(name).name}
    if parts != {name} or name in ("", ".", ".."):
        return f"{name!r}: not the name of a file in the directory"
    if not name.endswith(".safetensors"):
        return f"{name!r}: not a safetensors file"
    return ""


def _place_fault(folder: Path, name: str) -> str:
    return _link_fault(folder, name) or ("" if (folder / name).is_file() else f"{name}: missing")


def _link_fault(folder: Path, name: str) -> str:
    """Return what is wrong with where a file really lies; the hub's cache links its snapshots to its blobs."""
    try:
        here, real = folder.resolve(), (folder / name).resolve()
        real.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, characters that no name has
        return f"{name[:80]!r}: no place on this system: {(isinstance(error, OSError) and error.strerror) or error}"
    blobs = here.parents[1] / "blobs" if here.parent.name == "snapshots" else here
    if not (real.is_relative_to(here) or real.is_relative_to(blobs)):
        return f"{name}: a link to {real}, outside of the directory"
    return ""


def _missing_shards(names: list[str]) -> list[str]:
    """Return the shards that the others' numbers say there should be."""
    wanted = {
        f"{found['stem']}-{number:05d}-of-{found['count']}.safetensors"
        for name in names
        if (found := SHARD.fullmatch(name))
        for number in range(1, min(int(found["count"]), 10_000) + 1)
    }
    return [f"{name}: missing" for name in wanted - set(names)]


def _index_faults(names: dict[str, str], where: dict[str, SafetensorsFile]) -> list[str]:
    faults = []
    for tensor, file in names.items():
        found = where[tensor].path.name if tensor in where else None
        if found != file:
            faults.append(f"{tensor}: the index says {file}, found in {found or 'no file'}")
    return faults + [f"{tensor}: in {where[tensor].path.name}, not in the index" for tensor in where.keys() - names]
