"""What PEFT's `adapter_config.json` says: which kind, which rank and alpha a module has, which modules are meant.

Everything that has no counterpart here is refused by the name of its field. Modules that the configuration names and
the weights do not hold are told too: PEFT begins them anew with a warning, and an adapter that lost a file's half
loads as half an adapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weights_bridge.adapter_kinds import KINDS, Kind
from weights_bridge.config_values import is_number, is_whole
from weights_bridge.errors import StageError, all_at_once

HINT = "merge this adapter with PEFT itself, or train one without the field"
PATTERNS = ("rank_pattern", "alpha_pattern")
READ = {"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "target_modules", "exclude_modules"}
READ |= {"modules_to_save", "layers_to_transform", "layers_pattern", "init_lora_weights", *PATTERNS}
NO_MATTER = {  # of training and loading, not of what is computed
    *("inference_mode", "task_type", "revision", "auto_mapping", "peft_version", "base_model_name_or_path"),
    *("megatron_core", "runtime_config", "eva_config", "lora_ga_config", "loftq_config", "qalora_group_size"),
}
NEUTRAL: tuple[Any, ...] = (None, False, "none", [], {}, "")
KEPT_BASE = (True, False, "gaussian", "eva", "orthogonal", "mica")  # ways to begin that leave the base weights alone


@dataclass(frozen=True)
class PeftConfig:
    """The configuration of one adapter, checked.

    Attributes:
        kind: which formula.
        rank: of modules without their own.
        alpha: the same.
        dropout: while it was trained.
        fields: the document.
    """

    kind: Kind
    rank: int
    alpha: float
    dropout: float
    fields: Mapping[str, Any]

    def rank_of(self, module: str) -> int:
        """Return r of one module."""
        return int(self._own("rank_pattern", module, self.rank))

    def alpha_of(self, module: str) -> float:
        """Return alpha of one module."""
        return float(self._own("alpha_pattern", module, self.alpha))

    def _own(self, key: str, module: str, default: float) -> Any:
        """Return what the first pattern that ends a module's name gives it, as PEFT reads patterns."""
        patterns = self.fields.get(key) or {}
        return next((value for end, value in patterns.items() if re.match(rf"(.*\.)?({end})$", module)), default)

    def adapted(self, linears: Iterable[str]) -> set[str]:
        """Return which of a model's Linears are meant; none where the configuration does not say.

        A text is one regular expression over the whole name, a list holds names and ends of names; layers are the
        first number in a name (PEFT, `target_modules`, `exclude_modules`, `layers_to_transform`).
        """
        targets, layers = self.fields.get("target_modules") or [], self.fields.get("layers_to_transform")
        wanted = [layers] if isinstance(layers, int) else layers
        found = {name for name in linears if _is_meant(name, targets) and not self._is_left_out(name)}
        if wanted and not isinstance(targets, str):
            found = {name for name in found if name in targets or _layer_of(name) in wanted}
        return found

    def _is_left_out(self, module: str) -> bool:
        return any(_is_meant(module, self.fields.get(key) or []) for key in ("exclude_modules", "modules_to_save"))

    def saved(self, tensors: Iterable[str]) -> set[str]:
        """Return which of a model's tensors `modules_to_save` means."""
        return {
            name for name in tensors if _is_meant(name.rpartition(".")[0], self.fields.get("modules_to_save") or [])
        }


def _layer_of(module: str) -> int | None:
    found = re.search(r"\.(\d+)\.", module)
    return int(found[1]) if found else None


def _is_meant(module: str, names: str | list[str]) -> bool:
    if isinstance(names, str):
        return names == "all-linear" or re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def read_config(document: Any, path: Path) -> PeftConfig:
    """Check a configuration.

    Args:
        document: the parsed file.
        path: named in errors.

    Raises:
        StageError: fields that make no sense, and fields that have no counterpart here; all at once, by name.
    """
    if not isinstance(document, dict):
        raise StageError(f"{path}: not a JSON object", hint="give a directory that PEFT wrote")
    faults = []
    if document.get("peft_type") != "LORA":
        faults.append(f"peft_type: found {document.get('peft_type')!r}, wanted LORA")
    faults += _number_faults(document) + _name_faults(document)
    start = document.get("init_lora_weights", True)
    if start not in KEPT_BASE:
        faults.append(f"init_lora_weights: {start!r} changes the base weights before the training")
    if document.get("use_dora") and document.get("use_rslora"):
        faults.append("use_dora, use_rslora: DoRA with alpha / √r has no counterpart here")
    for key in ("use_dora", "use_rslora"):
        if not isinstance(document.get(key) or False, bool):
            faults.append(f"{key}: found {document[key]!r}, wanted true or false")
    known = READ | NO_MATTER
    faults += [
        f"{k}: {v!r} has no counterpart here" for k, v in document.items() if k not in known and v not in NEUTRAL
    ]
    if faults:
        raise all_at_once(f"{path}: cannot be expressed:", faults, hint=HINT)
    kind = KINDS["dora" if document.get("use_dora") else "rslora" if document.get("use_rslora") else "lora"]
    rank, alpha = document.get("r", 8), float(document.get("lora_alpha", 8))  # PEFT's own defaults
    return PeftConfig(kind, rank, alpha, float(document.get("lora_dropout") or 0.0), document)


def _number_faults(document: Mapping[str, Any]) -> list[str]:
    faults = []
    rank, alpha, dropout = document.get("r", 8), document.get("lora_alpha", 8), document.get("lora_dropout")
    if not is_whole(rank):
        faults.append(f"r: found {rank!r}, wanted a whole number above 0")
    if not is_number(alpha) or alpha <= 0:
        faults.append(f"lora_alpha: found {alpha!r}, wanted a number above 0")
    if dropout is not None and not (is_number(dropout) and 0 <= dropout < 1):
        faults.append(f"lora_dropout: found {dropout!r}, wanted a number from 0 to below 1")
    for key, (wanted, fits) in zip(PATTERNS, (("a whole number", is_whole), ("a number", is_number)), strict=True):
        patterns = document.get(key)
        if patterns and not isinstance(patterns, dict):
            faults.append(f"{key}: found {patterns!r}, wanted names with numbers")
            continue
        for name, value in (patterns or {}).items():
            if not fits(value) or value <= 0:
                faults.append(f"{key}: found {value!r} for {name}, wanted {wanted} above 0")
            faults += _pattern_fault(key, f"(.*\\.)?({name})$", name)
    return faults


def _name_faults(document: Mapping[str, Any]) -> list[str]:
    faults = []
    for key in ("target_modules", "exclude_modules", "modules_to_save", "layers_pattern"):
        value = document.get(key)
        if isinstance(value, str) and key != "modules_to_save":  # one regular expression
            faults += _pattern_fault(key, value, value)
        elif value and not _are(value, str):
            faults.append(f"{key}: found {value!r}, wanted a list of names")
    layers = document.get("layers_to_transform")
    if layers is not None and type(layers) is not int and not _are(layers, int):
        faults.append(f"layers_to_transform: found {layers!r}, wanted numbers of layers")
    return faults


def _are(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(one) is kind for one in value)


def _pattern_fault(key: str, pattern: str, shown: str) -> list[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"{key}: {shown!r} is no regular expression: {error}"]
    return []
