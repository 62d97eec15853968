"""Adapters from and to other trainers' directories, and model directories from one layout to the other."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
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
NEEDS = {"transformers": ("transformers", "torch"), "mlx-lm": ("mlx_lm", "mlx")}
WRITERS = {"peft": write_peft, "mlx": write_mlx_lm}


def require_own_place(out: Path, mark: str, sources: Iterable[Path] = (), run: RunFolder | None = None) -> None:
    """Require that writing a directory replaces nothing but an earlier one of its kind.

    Args:
        out: the directory to make.
        mark: the file that says it is one of its kind.
        sources: directories that are read for it.
        run: the run folder it is made of.

    Raises:
        StageError: something else is there, or what it is made of, or a part of the run.
    """
    place = out.resolve()
    for source in (path.resolve() for path in sources):
        if place == source or place in source.parents:
            raise StageError(f"{out}: it is made of what is there ({source})", hint="give a new folder: --out")
    if run is not None and (run.is_recorded(out) or place in (run.root.resolve(), *run.root.resolve().parents)):
        raise StageError(f"{out}: a part of the run, which its manifest holds", hint="give a new folder: --out")
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
        base = base_of(run)
        if kind == "peft":
            found = read_peft(source, base, _pickled if allow_pickle else None)
        else:
            found = read_mlx_lm(source, base)
        target = run.path("checkpoints", IMPORTED, "adapter.safetensors")
        write_adapter_file(target, found)
        stage.wrote(target)
        stage.facts |= {"from": kind, "type": found.facts["type"], "rank": found.facts["rank"]}
        stage.facts |= {"alpha": found.facts["alpha"], "modules": len(found.modules), "saved": found.facts["saved"]}
        stage.facts |= {"made_for": _made_for(source), "base": base.path.name}
    return stage.facts


def _made_for(source: Path) -> str:
    """Return which base an adapter's directory names; shapes fit other weights of the same architecture as well."""
    config = read_json(source / "adapter_config.json")
    named = config.get("base_model_name_or_path") or config.get("model")
    return PurePath(named).name if isinstance(named, str) else ""


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
    require_own_place(out, "adapter_config.json", run=run)
    found = read_adapter(adapter_of(run.root, which))
    base = base_of(run)
    WRITERS[kind](found, base, out)
    packed = str(base.path) if base.origin == "mlx" else ""
    return {"to": kind, "out": str(out), "type": found.facts["type"], "modules": len(found.modules), "packed": packed}


def convert_model(path: Path, to: Origin, out: Path, *, allow_pickle: bool = False) -> dict[str, Any]:
    """Rewrite a model directory in torch's or MLX's layout; the library it is for opens it before it is called done.

    Args:
        path: the directory; whose layout it has, its files say.
        to: whose layout to write.
        out: the directory to make.
        allow_pickle: whether pickled weights may be read, as weights only.

    Returns:
        Origin, number of tensors, files, what was left out and why.
    """
    require_own_place(out, "config.json", [path])
    out.parent.mkdir(parents=True, exist_ok=True)
    if allow_pickle and not any(path.glob("*.safetensors")):
        from converters.pickle_checkpoint import write_safetensors_of_pickles

        with tempfile.TemporaryDirectory(prefix="mlx-sentis-pickle-", dir=out.parent) as work:
            plain = Path(work) / path.resolve().name
            with folder_written_whole(plain) as new:
                write_safetensors_of_pickles(path, new)
                (new / "config.json").write_bytes((path / "config.json").read_bytes())
                copy_around(new, open_model_folder(path))
            return convert_model(plain, to, out)
    origin = origin_of(path)
    base = open_model_folder(path, origin=origin)
    with opened_before_done(out, "mlx-lm" if to == "mlx" else "transformers", base) as (made, opened):
        files = convert_folder(base, to, made)
    left_out = {name: why for name in base.stored if (why := base.architecture.is_dropped(name, base.config))}
    facts = {"from": origin, "to": to, "out": str(out), "files": files, "tensors": len(base.stored) - len(left_out)}
    return facts | {"left_out": left_out} | opened


def opener_of(library: str, base: ModelFolder) -> dict[str, str]:
    """Return who will open a directory for a library (`opened_by`), or why nobody (`not_opened`); the other is empty.

    Nothing is imported to find out: a build server that has neither framework writes directories all the same.
    """
    known = base.architecture.mlx_lm_module if library == "mlx-lm" else base.architecture.torch_class
    why = "" if known else f"{library} has no class for {base.architecture.model_type}"
    if missing := [name for name in NEEDS[library] if importlib.util.find_spec(name) is None]:
        why = why or f"{' and '.join(missing)} not installed here"
    return {"opened_by": "" if why else library, "not_opened": why}


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
def opened_before_done(out: Path, library: str, base: ModelFolder) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a place for a model directory; it becomes `out` when the library it is for has loaded it without a fault.

    Args:
        out: the directory to make.
        library: `transformers` or `mlx-lm`.
        base: what it is made of.

    Yields:
        The place, and who will open it (`opener_of`).

    Raises:
        StageError: keys are missing, unexpected or of another shape; all at once.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    opened = opener_of(library, base)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
        made = Path(work) / out.name
        try:
            yield made, opened
            if opened["opened_by"]:
                reopen(made, library)
        except StageError as error:
            error.message = error.message.replace(str(made), str(out))  # the place the user knows
            raise
        with folder_written_whole(out) as new:
            for file in made.iterdir():
                file.rename(new / file.name)
