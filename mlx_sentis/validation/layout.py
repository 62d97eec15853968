"""Where renders lie: one folder per category, one manifest, and nothing else.

outputs/eval/
  in-distribution/     01_slip-the-guard-a-coin.txt …
  out-of-distribution/ 01_…
  held-out/            01_… (only when rows were held out)
  prompts.json         file → full prompt and category
"""

from __future__ import annotations

import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlx_sentis.validation.prompts import CATEGORIES, Prompt
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import CannotWriteError, folder_written_whole, read_json, write_json

MANIFEST = "prompts.json"
TRAINER_LEFTOVERS = ("samples", "checkpoints", "training_config.yaml")
SLUG_CHARACTERS = 48
LATIN_MARKS = re.compile("[\u0300-\u036f]")  # other scripts' marks change a letter into another


def slug(text: str) -> str:
    """Return a prompt as part of a file name: lower case, words joined by hyphens, cut at a word.

    Letters of other scripts stay; accents on Latin letters go.
    """
    plain = LATIN_MARKS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", plain))
    if not words:
        return "prompt"
    kept = words[0][:SLUG_CHARACTERS]
    for word in words[1:]:
        if len(kept) + 1 + len(word) > SLUG_CHARACTERS:
            break
        kept += f"-{word}"
    return kept


def names_of(prompts: Sequence[Prompt], files: Sequence[Path]) -> list[str]:
    """Return each render's place below the folder, `held-out/02_open-the-gate.txt`, numbered within its category."""
    numbers = dict.fromkeys((category.folder for category in CATEGORIES), 0)
    names = []
    for prompt, file in zip(prompts, files, strict=True):
        folder = prompt.category.folder
        numbers[folder] += 1
        names.append(f"{folder}/{numbers[folder]:02d}_{slug(prompt.text)}{file.suffix.lower()}")
    return names


@contextmanager
def scratch_beside(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside the one for the renders, on the same disk, and take it away in the end.

    Raises:
        StageError: it cannot be made.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-work-", dir=folder.parent))
    except OSError as error:
        raise CannotWriteError(folder, error) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def move_into_place(prompts: Sequence[Prompt], files: Sequence[Path], folder: Path) -> dict[str, Prompt]:
    """Move renders into the layout, which takes the place of the folder and of all that was in it.

    Args:
        prompts: what was rendered.
        files: one per prompt, on the folder's own disk; they may lie inside the folder.
        folder: `outputs/eval`.

    Returns:
        File below the folder to its prompt.

    Raises:
        StageError: it cannot be written.
    """
    names = names_of(prompts, files)
    manifest = {n: {"prompt": p.text, "category": p.category.folder} for n, p in zip(names, prompts, strict=True)}
    with folder_written_whole(folder) as new:
        write_json(new / MANIFEST, manifest)  # before the moves: when the disk is full, the renders are still there
        for name, file in zip(names, files, strict=True):
            (new / name).parent.mkdir(exist_ok=True)
            shutil.move(file, new / name)
    return dict(zip(names, prompts, strict=True))


def require_ours(folder: Path) -> None:
    """Require that a folder holds only what earlier renders or a trainer left there, because it is replaced.

    Raises:
        StageError: something else is in it, or it is a link.
    """
    if folder.is_symlink():
        raise StageError(f"{folder}: is a link", hint="make it a folder: this phase replaces it")
    if not folder.is_dir():
        return
    recorded = _recorded(folder)
    strange = [path for path in sorted(folder.rglob("*")) if not _is_ours(path.relative_to(folder), path, recorded)]
    if strange:
        raise all_at_once(
            f"{folder}: holds what no render left there, and would be replaced:",
            [path.relative_to(folder).as_posix() for path in strange],
            hint="move it elsewhere: this folder holds renders and their manifest only",
        )


def _recorded(folder: Path) -> set[str]:
    manifest: Any = {}
    if (folder / MANIFEST).is_file():
        try:
            manifest = read_json(folder / MANIFEST)
        except StageError:
            manifest = {}
    return set(manifest) if isinstance(manifest, dict) else set()


def _is_ours(name: Path, path: Path, recorded: set[str]) -> bool:
    top = name.parts[0]
    if top in TRAINER_LEFTOVERS or name.name.startswith(".") or name.as_posix() == MANIFEST:
        return True
    if top not in {category.folder for category in CATEGORIES}:
        return False
    return path.is_dir() or name.as_posix() in recorded or name.name in recorded


def clear_leftovers(folder: Path) -> None:
    """Remove what a trainer left in the folder; a link goes, what it points at stays."""
    for name in TRAINER_LEFTOVERS:
        path = folder / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
