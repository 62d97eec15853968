"""mlx-lm's adapter directories, in and out: `adapter_config.json` and `adapters.safetensors`.

mlx-lm multiplies by `scale` itself and knows no alpha: s = scale, so that alpha is scale · r here. Its matrices are
ours transposed: lora_a [in, r], lora_b [r, out]; DoRA's magnitude is `m`.

Legend: `r` rank.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.foreign_adapters import finished, matched_or_refused
from weights_bridge.model_folder import ModelFolder
from weights_bridge.safetensors_reader import open_safetensors
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.weight_files import require_inside

CONFIG, WEIGHTS = "adapter_config.json", "adapters.safetensors"
PARTS = {"lora_a": "lora_A", "lora_b": "lora_B", "m": "magnitude"}
LAYER = re.compile(r"(.*\.layers)\.(\d+)\.(.+)")


def read_mlx_lm(folder: Path, base: ModelFolder) -> Adapter:
    """Read mlx-lm's directory as an adapter of a model.

    Raises:
        StageError: a field that is missing, contradicts another or has no counterpart, or tensors that do not fit.
    """
    kind, rank, scale, dropout = _settings(folder)
    names = base.architecture.torch_from_mlx(base.config)
    modules: dict[str, dict[str, Array]] = defaultdict(dict)
    unknown = []
    tensors = dict(open_safetensors(require_inside(folder, WEIGHTS)).tensors())
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        if part not in PARTS:
            unknown.append(name)
            continue
        torch = names.get(f"{module}.weight", f"{module}.weight").removesuffix(".weight")
        modules[torch][PARTS[part]] = array if part == "m" else array.T
    matched_or_refused(folder, base, list(tensors), modules, {}, unknown)
    facts = {"type": kind, "rank": rank, "alpha": scale * rank, "scale": scale, "norm": "detached", "dropout": dropout}
    return finished(folder, base, facts, modules, {})


def _settings(folder: Path) -> tuple[str, int, float, float]:
    """Return (kind, rank, scale, dropout) of the configuration."""
    config: Any = read_json(require_inside(folder, CONFIG))
    own: Any = config.get("lora_parameters") if isinstance(config, dict) else None
    if not isinstance(own, dict):
        raise StageError(f"{folder / CONFIG}: no lora_parameters", hint="give a directory that mlx-lm wrote")
    kind: Any = config.get("fine_tune_type", "lora")
    given: dict[str, Any] = {key: own.get(key) for key in ("rank", "scale", "alpha")}
    rank, scale, alpha = given.values()
    faults = []
    if kind not in ("lora", "dora"):
        faults.append(f"fine_tune_type: found {kind!r}, wanted lora or dora")
    if type(rank) is not int or rank < 1:
        faults.append(f"lora_parameters.rank: found {rank!r}, wanted 1 or more")
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        faults.append(
            f"lora_parameters.scale: found {scale!r}; mlx-lm multiplies by it, alpha is not read in its place"
        )
    elif alpha is not None and not faults and not math.isclose(alpha / rank, scale, rel_tol=1e-6):
        faults.append(f"lora_parameters: scale {scale} and alpha {alpha} (alpha / rank = {alpha / rank:g}) disagree")
    if faults:
        raise all_at_once(f"{folder / CONFIG}:", faults, hint="say once by how much the adapter is multiplied")
    return str(kind), int(given["rank"]), float(given["scale"]), float(own.get("dropout") or 0.0)


def write_mlx_lm(adapter: Adapter, base: ModelFolder, out: Path) -> None:
    """Write an adapter as mlx-lm's directory, whole or not at all.

    Raises:
        StageError: mlx-lm has no field for it; all reasons at once.
    """
    faults = _inexpressible(adapter)
    layers, keys, scattered = _layers_and_keys(base, list(adapter.modules))
    if faults + scattered:
        hint = "`--to peft` or the merged directory hold all of it"
        raise all_at_once("cannot be expressed in mlx-lm's adapter_config.json:", faults + scattered, hint=hint)
    first = next(iter(adapter.modules))
    config = {
        "fine_tune_type": "dora" if adapter.kind is KINDS["dora"] else "lora",
        "num_layers": layers,
        "lora_parameters": {
            "rank": adapter.rank_of(first),
            "scale": adapter.scale_of(first),
            "dropout": adapter.facts.get("dropout", 0.0),
            "keys": keys,
        },
        "model": base.path.name,
    }
    names = base.architecture.mlx_from_torch(base.config)
    ours = {part: theirs for theirs, part in PARTS.items()}
    tensors = {
        f"{names[module + '.weight'].removesuffix('weight')}{ours[part]}": array if array.ndim == 1 else array.T
        for module, parts in adapter.modules.items()
        for part, array in parts.items()
    }
    with folder_written_whole(out) as new:
        write_json(new / CONFIG, config)
        shapes = {name: array.shape for name, array in tensors.items()}
        write_safetensors(
            new / WEIGHTS, shapes, ((n, np.ascontiguousarray(a)) for n, a in tensors.items()), {"format": "mlx"}
        )


def _inexpressible(adapter: Adapter) -> list[str]:
    if adapter.is_full or adapter.kind.name not in ("lora", "rslora", "dora"):
        return [f"type: {adapter.facts['type']}"]
    ranks = {adapter.rank_of(module) for module in adapter.modules}
    scales = {adapter.scale_of(module) for module in adapter.modules}
    faults = [f"ranks: {sorted(ranks)}, one for all is possible"] if len(ranks) > 1 else []
    faults += [f"scales: {sorted(scales)}, one for all is possible"] if len(scales) > 1 else []
    return faults + [f"{name}: whole tensors have no place" for name in adapter.saved]


def _layers_and_keys(base: ModelFolder, modules: list[str]) -> tuple[int, list[str], list[str]]:
    """Return (the last so many layers, names inside a layer, what does not fit that form)."""
    keys_of: dict[int, set[str]] = defaultdict(set)
    for module in modules:
        if found := LAYER.fullmatch(module):
            keys_of[int(found[2])].add(found[3])
    count, total = len(keys_of), base.config["num_hidden_layers"]
    keys = next(iter(keys_of.values()), set())
    if set(keys_of) != set(range(total - count, total)) or any(own != keys for own in keys_of.values()):
        return count, sorted(keys), ["targets: mlx-lm adapts the same modules in the last layers, without gaps"]
    return count, sorted(keys), []
