"""Merging an adapter into the base weights, in fp32, tensor by tensor.

The formulas are those of `adapter_kinds`. Products and norms are taken in float64 and rounded once, so that the merged
weight carries one rounding and not three.

Legend: `r` rank, `in`/`out` the sides of the weight as a matrix.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.adapter_kinds import Kind
from weights_bridge.compare import Array
from weights_bridge.errors import all_at_once
from weights_bridge.files import folder_written_whole, read_json, sha256_of, write_json
from weights_bridge.model_folder import TOKENIZER_FILES, ModelFolder
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.weight_files import require_inside

LEAST_NORM = 1e-12  # added to each norm, so that a row or column of zeros stays zeros


def merged_weight(weight: Array, parts: dict[str, Array], kind: Kind, scale: float) -> Array:
    """Return one merged weight in fp32, in the shape it came in.

    Args:
        weight: W, fp32, in torch's layout: [out, in] or [out, channels, taps].
        parts: the module's tensors.
        kind: which formula.
        scale: s.
    """
    part = {name: array.astype(np.float64) for name, array in parts.items()}
    change = part["U"] @ part["M_xs"] @ part["V"].T if kind.fixed_bases else part["lora_B"] @ part["lora_A"]
    adapted = weight.reshape(weight.shape[0], -1).astype(np.float64) + scale * change
    if kind.rows:
        norm = np.linalg.norm(adapted, axis=1) + LEAST_NORM
        adapted *= (part[kind.row_magnitude] / norm)[:, None]
    if kind.columns:
        norm = np.linalg.norm(adapted, axis=0) + LEAST_NORM
        adapted *= part[kind.column_magnitude] / norm
    return adapted.astype(np.float32).reshape(weight.shape)


def merged_tensors(base: ModelFolder, adapter: Adapter) -> Iterator[tuple[str, Array]]:
    """Yield (torch name, fp32 array) of the merged model, one at a time.

    Raises:
        StageError: a module of the adapter is not in the model, or its shapes do not fit; all at once.
    """
    check_fit(base, adapter)
    trained = adapter.flat() if adapter.is_full else {}
    for name, array in base.tensors():
        module = name.removesuffix(".weight")
        if adapter.is_full:
            yield name, trained.get(name, array)
        elif name.endswith(".weight") and module in adapter.modules:
            parts = adapter.modules[module]
            yield name, merged_weight(array, parts, adapter.kind, adapter.scale_of(module))
        else:
            yield name, array


def check_fit(base: ModelFolder, adapter: Adapter) -> None:
    """Require that everything in the adapter has its place in the model, with fitting shapes."""
    faults = _full_faults(base, adapter) if adapter.is_full else _module_faults(base, adapter)
    if faults:
        raise all_at_once("the adapter does not fit the model:", faults, hint="use the base model it was trained on")


def _module_faults(base: ModelFolder, adapter: Adapter) -> list[str]:
    linears = base.architecture.linear_modules(base.config)
    faults = []
    for module, parts in adapter.modules.items():
        if module not in linears:
            faults.append(f"{module}: not a Linear of {base.path}")
            continue
        wanted = adapter.kind.shapes(*linears[module], adapter.rank_of(module))
        faults += [
            f"{module}.{part}: found {array.shape}, wanted {wanted[part]}"
            for part, array in parts.items()
            if array.shape != wanted[part]
        ]
    return faults


def _full_faults(base: ModelFolder, adapter: Adapter) -> list[str]:
    wanted = base.architecture.torch_shapes(base.config)
    found = {name: array.shape for name, array in adapter.flat().items()}
    faults = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: not a tensor of {base.path}" for name in found.keys() - wanted.keys()]
    both = wanted.keys() & found.keys()
    return faults + [f"{n}: found {found[n]}, wanted {wanted[n]}" for n in both if found[n] != wanted[n]]


def require_base(base: ModelFolder, adapter: Adapter) -> None:
    """Require the very weight files that the adapter was trained on; an adapter that names none is taken as it is.

    Raises:
        StageError: a file is missing, is another one, or is new.
    """
    trained_on = adapter.facts.get("base")
    if not trained_on:
        return
    here = {file.name: sha256_of(file) for file in base.weight_files()}
    if here != trained_on:
        faults = [f"{name}: missing or altered" for name in trained_on if here.get(name) != trained_on[name]]
        faults += [f"{name}: was not there" for name in here.keys() - trained_on.keys()]
        hint = "restore these files, or train again"
        raise all_at_once(f"{base.path}: not the weights the adapter was trained on:", faults, hint=hint)


def write_merged(
    base: ModelFolder, adapter: Adapter, out: Path, stop_ids: list[int], template: Path | None = None
) -> None:
    """Write the merged model as a Hugging Face directory in fp32, whole or not at all.

    Args:
        base: the base model.
        adapter: what was trained.
        out: the directory to make; weights, configuration, generation configuration, tokenizer and template.
        stop_ids: what ends an answer; the generation configuration names them even where the base's did not.
        template: a Jinja file that was used in place of the model's own template.
    """
    shapes = {name: base.architecture.torch_shapes(base.config)[name] for name in _written_names(base)}
    base.check_tensors(values=True)
    copied = [require_inside(base.path, name) for name in TOKENIZER_FILES if (base.path / name).is_file()]
    with folder_written_whole(out) as new:
        tensors = ((name, array) for name, array in merged_tensors(base, adapter) if name in shapes)
        write_safetensors(new / "model.safetensors", shapes, tensors)
        for file in copied:
            shutil.copyfile(file, new / file.name)
        if template is not None:
            shutil.copyfile(template, new / "chat_template.jinja")
        generation = read_json(new / "generation_config.json") if (new / "generation_config.json").is_file() else {}
        write_json(new / "generation_config.json", generation | {"eos_token_id": stop_ids})
        config = read_json(base.path / "config.json") | {"dtype": "float32"}
        config.pop("torch_dtype", None)  # transformers 4's word for the same
        # both places that readers look at (see `normalised_config`)
        config |= {k: base.config[k] for k in ("rope_theta", "rope_local_base_freq") if k in base.config}
        write_json(new / "config.json", config)


def _written_names(base: ModelFolder) -> list[str]:
    """Return the tensor names in file order; a tied head that was stored twice is written once."""
    wanted = base.architecture.torch_shapes(base.config)
    return [name for name in base.tensor_names() if name in wanted]
