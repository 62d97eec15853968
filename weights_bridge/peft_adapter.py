"""PEFT's adapter directories, in and out: `adapter_config.json` and `adapter_model.safetensors`.

What is read and written: LoRA, rsLoRA and DoRA on Linears, ranks and alphas by module, whole modules
(`modules_to_save`). Everything else is refused by the name of its field; no tensor is passed over in silence.

PEFT stores alpha, and computes s = alpha / r (alpha / √r for rsLoRA). Legend: `r` rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from weights_bridge.adapter_file import Adapter, alpha_of, rank_of
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.foreign_adapters import finished, matched_or_refused, require_named
from weights_bridge.model_folder import ModelFolder
from weights_bridge.peft_config import read_config
from weights_bridge.safetensors_reader import open_safetensors
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.weight_files import require_inside

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
PARTS = {  # what stands behind the module's name, with or without the adapter's own name between
    r"lora_A(\.\w+)?\.weight": "lora_A",
    r"lora_B(\.\w+)?\.weight": "lora_B",
    r"lora_magnitude_vector(\.\w+)?(\.weight)?": "magnitude",
}


def read_peft(folder: Path, base: ModelFolder, pickled: Callable[[Path], dict[str, Array]] | None = None) -> Adapter:
    """Read a PEFT directory as an adapter of a model.

    Args:
        folder: with `adapter_config.json` and its weights.
        base: the model it belongs to.
        pickled: reads `adapter_model.bin`, where that is allowed.

    Raises:
        StageError: a field that has no counterpart here, or tensors that do not fit; all at once.
    """
    config = read_config(read_json(require_inside(folder, CONFIG)), folder / CONFIG)
    whole = base.architecture.torch_shapes(base.config)
    modules: dict[str, dict[str, Array]] = defaultdict(dict)
    saved: dict[str, Array] = {}
    unknown: list[str] = []
    tensors = _tensors(folder, pickled)
    twice: list[str] = []
    for name, array in tensors.items():
        module, part = _placed(name)
        if (place := modules[module] if part else saved).setdefault(part or module, array) is not array:
            twice.append(name)  # two adapters in one file, or two spellings of one tensor
        elif not part and module not in whole:
            unknown.append(name)
            del place[module]
    matched_or_refused(folder, base, list(tensors), modules, saved, unknown, twice)
    meant = config.adapted(base.architecture.linear_modules(base.config))
    absent = {"target_modules": meant - modules.keys(), "modules_to_save": config.saved(whole) - saved.keys()}
    require_named(folder / CONFIG, absent)
    facts = {
        "type": config.kind.name,
        "rank": config.rank,
        "alpha": config.alpha,
        "scale": config.kind.scale(config.rank, config.alpha),
        "norm": "detached",
        "dropout": config.dropout,
        "ranks": {m: config.rank_of(m) for m in modules if config.rank_of(m) != config.rank},
        "alphas": {m: config.alpha_of(m) for m in modules if config.alpha_of(m) != config.alpha},
    }
    return finished(folder, base, facts, modules, saved)


def _tensors(folder: Path, pickled: Callable[[Path], dict[str, Array]] | None) -> dict[str, Array]:
    if (folder / WEIGHTS).exists():
        return dict(open_safetensors(require_inside(folder, WEIGHTS)).tensors())
    if not (folder / PICKLE).exists():
        raise StageError(f"{folder}: no {WEIGHTS}", hint="give a directory that PEFT's save_pretrained wrote")
    if pickled is None:
        hint = "--allow-pickle reads it as weights only; or save it again with safe_serialization"
        raise StageError(f"{folder / PICKLE}: pickle is not read", hint=hint)
    return pickled(require_inside(folder, PICKLE))


def _placed(name: str) -> tuple[str, str]:
    """Return (module, part) of an adapter's tensor, (tensor, "") of a whole module's."""
    own = name.removeprefix(PREFIX)
    for pattern, part in PARTS.items():
        if found := re.fullmatch(rf"(.+)\.{pattern}", own):
            return found[1], part
    return re.sub(r"\.modules_to_save\.\w+\.", ".", own), ""


def write_peft(adapter: Adapter, base: ModelFolder, out: Path) -> None:
    """Write an adapter as a PEFT directory, whole or not at all.

    Raises:
        StageError: PEFT's LoRA has no field for it.
    """
    kind = "full" if adapter.is_full else adapter.kind.name
    if kind not in ("lora", "rslora", "dora"):
        hint = "`mlx-sentis bridge RUN` merges it into a directory that everything reads"
        raise StageError(f"type: {kind} has no counterpart in PEFT", hint=hint)
    facts, names = adapter.facts, list(adapter.modules)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.path.name,
        "r": facts["rank"],
        "lora_alpha": _plain(facts["alpha"]),
        "lora_dropout": facts.get("dropout", 0.0),
        "use_rslora": kind == "rslora",
        "use_dora": kind == "dora",
        "rank_pattern": {m: rank_of(facts, m) for m in names if rank_of(facts, m) != facts["rank"]},
        "alpha_pattern": {m: _plain(alpha_of(facts, m)) for m in names if alpha_of(facts, m) != facts["alpha"]},
        "target_modules": _targets(base, names),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in adapter.saved}) or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    tensors = {
        PREFIX + _peft_name(module, part): a for module, own in adapter.modules.items() for part, a in own.items()
    }
    tensors |= {PREFIX + name: array for name, array in adapter.saved.items()}
    with folder_written_whole(out) as new:
        write_json(new / CONFIG, config)
        write_safetensors(new / WEIGHTS, {n: a.shape for n, a in tensors.items()}, tensors.items())


def _peft_name(module: str, part: str) -> str:
    return f"{module}.lora_magnitude_vector" if part == "magnitude" else f"{module}.{part}.weight"


def _plain(number: float) -> float | int:
    """Return a whole number as one: PEFT's alpha is an int by its own declaration."""
    return int(number) if float(number).is_integer() else number


def _targets(base: ModelFolder, names: list[str]) -> list[str]:
    """Return the last parts of the modules' names where those mean exactly these modules, else the whole names."""
    ends = sorted({name.rpartition(".")[2] for name in names})
    meant = {name for name in base.architecture.linear_modules(base.config) if name.rpartition(".")[2] in ends}
    return ends if meant == set(names) else sorted(names)
