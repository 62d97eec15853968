"""Merging an adapter into the base weights, in fp32, tensor by tensor.

LoRA: W' = W + s B A. DoRA: W' = (m / ‖W + s B A‖) ⊙ (W + s B A), the norm of each row. Products and norms are
taken in float64 and rounded once, so that the merged weight carries one rounding and not three.

Legend: `r` rank, `in`/`out` the Linear's widths.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.compare import Array
from weights_bridge.errors import all_at_once
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.model_folder import TOKENIZER_FILES, ModelFolder
from weights_bridge.safetensors_writer import write_safetensors


def merged_weight(weight: Array, parts: dict[str, Array], scale: float) -> Array:
    """Return one merged weight [out, in] in fp32.

    Args:
        weight: W [out, in], fp32.
        parts: `lora_A` [r, in], `lora_B` [out, r] and, for DoRA, `magnitude` [out].
        scale: s, alpha / r.
    """
    adapted = weight.astype(np.float64) + scale * (parts["lora_B"].astype(np.float64) @ parts["lora_A"])
    if "magnitude" in parts:
        norm = np.linalg.norm(adapted, axis=1, keepdims=True)
        adapted *= parts["magnitude"].astype(np.float64)[:, None] / norm
    return adapted.astype(np.float32)


def merged_tensors(base: ModelFolder, adapter: Adapter) -> Iterator[tuple[str, Array]]:
    """Yield (torch name, fp32 array) of the merged model, one at a time.

    Raises:
        StageError: a module of the adapter is not in the model, or its shapes do not fit; all at once.
    """
    check_fit(base, adapter)
    for name, array in base.tensors():
        parts = adapter.modules.get(name.removesuffix(".weight")) if name.endswith(".weight") else None
        yield name, merged_weight(array, parts, adapter.scale) if parts else array


def check_fit(base: ModelFolder, adapter: Adapter) -> None:
    """Require that every module of the adapter is a Linear of the model with fitting widths."""
    linears, rank = base.architecture.linear_modules(base.config), int(adapter.facts["rank"])
    faults = []
    for module, parts in adapter.modules.items():
        if module not in linears:
            faults.append(f"{module}: not a Linear of {base.path}")
            continue
        out, width = linears[module]
        wanted = {"lora_A": (rank, width), "lora_B": (out, rank), "magnitude": (out,)}
        faults += [
            f"{module}.{part}: found {array.shape}, wanted {wanted[part]}"
            for part, array in parts.items()
            if array.shape != wanted[part]
        ]
    if faults:
        raise all_at_once("the adapter does not fit the model:", faults, hint="use the base model it was trained on")


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
    with folder_written_whole(out) as new:
        tensors = ((name, array) for name, array in merged_tensors(base, adapter) if name in shapes)
        write_safetensors(new / "model.safetensors", shapes, tensors)
        for name in TOKENIZER_FILES:
            if (base.path / name).is_file():
                shutil.copyfile(base.path / name, new / name)
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
