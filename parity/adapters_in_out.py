"""Adapters from and to other trainers' directories, and model directories from one layout to the other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.children import run_child
from weights_bridge.adapter_file import IMPORTED, adapter_of, read_adapter
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, read_json
from weights_bridge.foreign_adapters import write_adapter_file
from weights_bridge.mlx_lm_adapter import read_mlx_lm, write_mlx_lm
from weights_bridge.model_folder import ModelFolder, Origin, open_base, open_model_folder
from weights_bridge.model_writer import convert_folder, copy_around, origin_of
from weights_bridge.peft_adapter import read_peft, write_peft
from weights_bridge.run_folder import RunFolder

OPENERS = {"transformers": "parity.runners.reopen", "mlx-lm": "parity.runners.reopen_mlx"}
WRITERS = {"peft": write_peft, "mlx": write_mlx_lm}


def require_own_place(out: Path, mark: str) -> None:
    """Require that writing a directory replaces nothing but an earlier one of its kind.

    Args:
        out: the directory to make.
        mark: the file that says it is one of its kind.

    Raises:
        StageError: something else is there.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / mark).is_file():
        raise StageError(f"{out}: is there and holds no {mark}: it would be replaced", hint="give a new folder: --out")
    if out.exists() and not out.is_dir():
        raise StageError(f"{out}: is a file", hint="give a new folder: --out")


def base_of(run: RunFolder) -> ModelFolder:
    """Return the base model of a run."""
    return open_base(Path(read_json(run.path("recipe.json"))["model"]["path"]))


def import_adapter(run: RunFolder, kind: str, source: Path, *, allow_pickle: bool = False) -> dict[str, Any]:
    """Read an adapter directory into a run as `checkpoints/imported/`.

    Args:
        run: with `recipe.json`.
        kind: `peft` or `mlx`.
        source: the directory.
        allow_pickle: whether `adapter_model.bin` may be read, as weights only.

    Returns:
        Kind, rank, alpha, number of modules.

    Raises:
        StageError: something in it has no counterpart or no place in the model.
    """
    if not source.is_dir():
        raise StageError(f"{source}: no such directory", hint="give the directory with adapter_config.json")
    with run.stage("import", [run.path("recipe.json")]) as stage:
        if kind == "peft":
            found = read_peft(source, base_of(run), _pickled if allow_pickle else None)
        else:
            found = read_mlx_lm(source, base_of(run))
        target = run.path("checkpoints", IMPORTED, "adapter.safetensors")
        write_adapter_file(target, found)
        stage.wrote(target)
        stage.facts |= {"from": kind, "type": found.facts["type"], "rank": found.facts["rank"]}
        stage.facts |= {"alpha": found.facts["alpha"], "modules": len(found.modules), "saved": found.facts["saved"]}
    return stage.facts


def _pickled(path: Path) -> Any:
    from converters.pickle_checkpoint import tensors_of_pickle

    return tensors_of_pickle(path)


def export_adapter(run: RunFolder, kind: str, which: str, out: Path) -> dict[str, Any]:
    """Write a run's adapter as another trainer's directory.

    Args:
        run: with `recipe.json` and `checkpoints/`.
        kind: `peft` or `mlx`.
        which: the checkpoint.
        out: the directory to make.

    Raises:
        StageError: no such checkpoint, or the other form has no field for something.
    """
    require_own_place(out, "adapter_config.json")
    found = read_adapter(adapter_of(run.root, which))
    WRITERS[kind](found, base_of(run), out)
    return {"to": kind, "out": str(out), "type": found.facts["type"], "modules": len(found.modules)}


def convert_model(path: Path, to: Origin, out: Path, *, allow_pickle: bool = False) -> dict[str, Any]:
    """Rewrite a model directory in torch's or MLX's layout; the library it is for opens it before it is called done.

    Args:
        path: the directory; whose layout it has, its files say.
        to: whose layout to write.
        out: the directory to make.
        allow_pickle: whether pickled weights may be read, as weights only.

    Returns:
        Origin, number of tensors, files.
    """
    require_own_place(out, "config.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    if allow_pickle and not any(path.glob("*.safetensors")):
        from converters.pickle_checkpoint import write_safetensors_of_pickles

        with tempfile.TemporaryDirectory(prefix="mlx-sentis-pickle-", dir=out.parent) as work:
            plain = Path(work) / path.name
            with folder_written_whole(plain) as new:
                write_safetensors_of_pickles(path, new)
                (new / "config.json").write_bytes((path / "config.json").read_bytes())
                copy_around(new, open_model_folder(path))
            return convert_model(plain, to, out)
    origin = origin_of(path)
    base = open_model_folder(path, origin=origin)
    with opened_before_done(out, "mlx-lm" if to == "mlx" else "transformers", base) as (made, opener):
        files = convert_folder(base, to, made)
    facts = {"from": origin, "to": to, "out": str(out), "files": files, "tensors": len(base.stored)}
    return facts | {"opened_by": opener}


def reopen(folder: Path, library: str) -> None:
    """Require that a library loads a model directory as it is.

    Args:
        folder: the directory.
        library: `transformers` or `mlx-lm`.

    Raises:
        StageError: it does not; keys that are missing, unexpected or of another shape all at once.
    """
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-reopen-") as work:
        run_child(OPENERS[library], {"folder": str(folder)}, Path(work) / "request.json")


@contextmanager
def opened_before_done(out: Path, library: str, base: ModelFolder) -> Iterator[tuple[Path, str]]:
    """Yield a place for a model directory; it becomes `out` when the library it is for has loaded it without a fault.

    Args:
        out: the directory to make.
        library: `transformers` or `mlx-lm`.
        base: what it is made of.

    Yields:
        The place, and who will open it: empty where mlx-lm has no definition of the architecture.

    Raises:
        StageError: keys are missing, unexpected or of another shape; all at once.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    opener = "" if library == "mlx-lm" and not base.architecture.mlx_lm_module else library
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
        made = Path(work) / out.name
        yield made, opener
        if opener:
            reopen(made, opener)
        with folder_written_whole(out) as new:
            for file in made.iterdir():
                file.rename(new / file.name)
