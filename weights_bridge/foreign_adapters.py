"""What reading anybody else's adapter has in common: everything has its place in the model, or the file is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_file import Adapter, naming_scheme, rank_of
from weights_bridge.adapter_kinds import kind_of
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import written_whole
from weights_bridge.model_folder import ModelFolder
from weights_bridge.safetensors_reader import all_finite, is_of
from weights_bridge.safetensors_writer import write_safetensors

TABLES = ("model.embed_tokens.weight", "lm_head.weight")
READ_AS = "PEFT directories and mlx-lm's are read; convert it to one of them first"
Modules = Mapping[str, dict[str, Array]]


def matched_or_refused(
    path: Path,
    base: ModelFolder,
    names: list[str],
    modules: Modules,
    saved: Mapping[str, Array],
    unknown: list[str],
    twice: Iterable[str] = (),
) -> None:
    """Require that every tensor of a file was placed in the model, each in a place of its own.

    Args:
        path: the file or directory, named in errors.
        base: the model.
        names: the file's own tensor names.
        modules: torch module name to its tensors, as far as names were understood.
        saved: whole tensors by their torch names.
        unknown: names that were not understood.
        twice: names whose place another tensor of the file had already.

    Raises:
        StageError: nothing matches, with whose naming it is; or all that does not.
    """
    linears = base.architecture.linear_modules(base.config)
    if not saved and not linears.keys() & modules.keys():
        scheme = naming_scheme(names)
        whose = f"; its tensors are named as by {scheme}" if scheme else ""
        raise StageError(f"{path}: 0 of {len(names)} tensors match {base.path.name}{whose}", hint=READ_AS)
    faults = [f"{name}: not understood" for name in unknown]
    faults += [f"{name}: another tensor of the file has this place already" for name in twice]
    faults += [f"{module}: not a Linear of {base.path}" for module in modules.keys() - linears.keys()]
    if base.config["tie_word_embeddings"]:
        faults += [f"{n}: head and embedding are one table here, it would change both" for n in TABLES if n in saved]
    if faults:
        raise all_at_once(f"{path}: tensors without a place in the model:", faults, hint="use the base it was made for")


def require_named(path: Path, absent: Mapping[str, Iterable[str]]) -> None:
    """Require tensors for everything that a configuration names: a file that lost some would be half an adapter.

    Args:
        path: the configuration.
        absent: field to modules or tensors that it names and that the weights do not hold.

    Raises:
        StageError: there are some; all at once.
    """
    faults = [f"{name}: named by {field}, its tensors are missing" for field, names in absent.items() for name in names]
    if faults:
        raise all_at_once(f"{path}: not a whole adapter:", faults, hint="save or copy the adapter's directory again")


def finished(
    path: Path, base: ModelFolder, facts: dict[str, Any], modules: Modules, saved: Mapping[str, Array]
) -> Adapter:
    """Return an adapter in fp32 whose tensors have the shapes that its facts and the model say.

    Raises:
        StageError: shapes differ, parts are missing, or values are not finite; all at once.
    """
    linears, kind = base.architecture.linear_modules(base.config), kind_of(facts["type"])
    shapes = {f"{m}.{part}": s for m in modules for part, s in kind.shapes(*linears[m], rank_of(facts, m)).items()}
    found = {
        f"{module}.{part}": array.reshape(-1) if part == "magnitude" else array  # PEFT once stored [1, out] or [out, 1]
        for module, parts in modules.items()
        for part, array in parts.items()
    }
    shapes |= {name: base.architecture.torch_shapes(base.config)[name] for name in saved}
    found |= saved
    faults = [f"{name}: missing" for name in shapes.keys() - found.keys()]
    faults += [f"{name}: {facts['type']} has none" for name in found.keys() - shapes.keys()]
    both = shapes.keys() & found.keys()
    faults += [f"{n}: found {found[n].shape}, wanted {shapes[n]}" for n in both if found[n].shape != shapes[n]]
    faults += [f"{n}: holds {found[n].dtype}, wanted floats" for n in both if not is_of(found[n].dtype, "floats")]
    with np.errstate(over="ignore"):  # a float64 beyond fp32 becomes an infinity, and is refused as one
        wide = {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}
    faults += [f"{name}: holds values that are not finite" for name in both if not all_finite(wide[name])]
    if faults:
        hint = "rank and tensors must come from one training on this base"
        raise all_at_once(f"{path}: not a whole adapter of {base.path.name}:", faults, hint=hint)
    targets = sorted(modules)
    own = {m: {part: wide[f"{m}.{part}"] for part in sorted(modules[m])} for m in targets}
    facts = facts | {"targets": targets, "saved": sorted(saved)}
    return Adapter(facts, own, {name: wide[name] for name in sorted(saved)})


def write_adapter_file(path: Path, adapter: Adapter) -> None:
    """Write an adapter as our interchange file, whole or not at all."""
    tensors = adapter.flat() | adapter.saved
    with written_whole(path) as beside:
        shapes = {name: array.shape for name, array in tensors.items()}
        write_safetensors(beside, shapes, tensors.items(), {"adapter": json.dumps(adapter.facts)})
