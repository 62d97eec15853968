"""mlx-lm's adapter directories, in and out: `adapter_config.json` and `adapters.safetensors`.

mlx-lm multiplies by `scale` itself and knows no alpha: s = scale, so that alpha is scale · r here. Its matrices are
ours transposed: lora_a [in, r], lora_b [r, out]; DoRA's magnitude is `m`.

Legend: `r` rank.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_file import Adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.compare import Array
from weights_bridge.config_values import is_number, is_whole
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.foreign_adapters import finished, matched_or_refused, require_named
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
    settings = _settings(folder)
    names = base.architecture.torch_from_mlx(base.config)
    modules: dict[str, dict[str, Array]] = defaultdict(dict)
    unknown = []
    if not (folder / WEIGHTS).exists():
        others = sorted(path.name for path in folder.glob("*adapters.*"))
        hint = f"found {', '.join(others[:3])}: copy the one you mean to {WEIGHTS}" if others else "train writes it"
        raise StageError(f"{folder}: no {WEIGHTS}", hint=hint)
    tensors = dict(open_safetensors(require_inside(folder, WEIGHTS)).tensors())
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        if part not in PARTS:
            unknown.append(name)
            continue
        torch = names.get(f"{module}.weight", f"{module}.weight").removesuffix(".weight")
        modules[torch][PARTS[part]] = array if part == "m" else array.T
    matched_or_refused(folder, base, list(tensors), modules, {}, unknown)
    absent = settings.adapted(base.architecture.linear_modules(base.config), base) - modules.keys()
    require_named(folder / CONFIG, {"lora_parameters.keys": absent})
    rank, scale = settings.rank, settings.scale
    facts = {"type": settings.kind, "rank": rank, "alpha": scale * rank, "scale": scale, "norm": "detached"}
    return finished(folder, base, facts | {"dropout": settings.dropout}, modules, {})


@dataclass(frozen=True)
class _Settings:
    """What an `adapter_config.json` says; `keys` and `layers` are None where it leaves them to mlx-lm."""

    kind: str
    rank: int
    scale: float
    dropout: float
    keys: list[str] | None
    layers: int | None

    def adapted(self, linears: Iterable[str], base: ModelFolder) -> set[str]:
        """Return which of a model's Linears are meant: those of `keys` in the last layers; none without `keys`."""
        if self.keys is None or self.layers is None:
            return set()
        total = base.config["num_hidden_layers"]
        first = total - self.layers if 0 < self.layers < total else 0  # 0 and -1 are all (mlx-lm, tuner/utils.py)
        placed = ((name, LAYER.fullmatch(name)) for name in linears)
        return {name for name, found in placed if found and int(found[2]) >= first and found[3] in self.keys}


def _settings(folder: Path) -> _Settings:
    """Read and check the configuration."""
    config: Any = read_json(require_inside(folder, CONFIG))
    own: Any = config.get("lora_parameters") if isinstance(config, dict) else None
    if not isinstance(own, dict):
        raise StageError(f"{folder / CONFIG}: no lora_parameters", hint="give a directory that mlx-lm wrote")
    kind, keys, layers = config.get("fine_tune_type", "lora"), own.get("keys"), config.get("num_layers")
    faults = _number_faults(own)
    if kind not in ("lora", "dora"):
        faults.append(f"fine_tune_type: found {kind!r}, wanted lora or dora")
    if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        faults.append(f"lora_parameters.keys: found {keys!r}, wanted names of modules")
    if layers is not None and type(layers) is not int:
        faults.append(f"num_layers: found {layers!r}, wanted a whole number")
    faults += [
        f"lora_parameters.{key}: {value!r} has no counterpart here"
        for key, value in own.items()
        if key not in ("rank", "scale", "alpha", "dropout", "keys") and value not in (None, False, [], {}, "")
    ]
    if faults:
        raise all_at_once(f"{folder / CONFIG}:", faults, hint="say once by how much the adapter is multiplied")
    return _Settings(kind, own["rank"], float(own["scale"]), float(own.get("dropout") or 0.0), keys, layers)


def _number_faults(own: dict[str, Any]) -> list[str]:
    given: dict[str, Any] = {key: own.get(key) for key in ("rank", "scale", "alpha", "dropout")}
    rank, scale, alpha, dropout = given.values()
    faults = []
    if not is_whole(rank):
        faults.append(f"lora_parameters.rank: found {rank!r}, wanted a whole number above 0")
    if not is_number(scale) or scale == 0:
        faults.append(
            f"lora_parameters.scale: found {scale!r}; mlx-lm multiplies by it, alpha is not read in its place"
        )
    if alpha is not None and not is_number(alpha):
        faults.append(f"lora_parameters.alpha: found {alpha!r}, wanted a number")
    if dropout is not None and not (is_number(dropout) and 0 <= dropout < 1):
        faults.append(f"lora_parameters.dropout: found {dropout!r}, wanted a number from 0 to below 1")
    if alpha is not None and not faults and not math.isclose(alpha / rank, scale, rel_tol=1e-6):
        faults.append(f"lora_parameters: scale {scale} and alpha {alpha} (alpha / rank = {alpha / rank:g}) disagree")
    return faults


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
