"""The adapter's interchange file: `<torch module>.lora_A|lora_B|magnitude` in fp32, facts in the metadata.

Legend: `r` rank, `in`/`out` the Linear's widths.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once


@dataclass(frozen=True)
class Adapter:
    """An adapter, read.

    Attributes:
        facts: type, rank, alpha, scale, dora_norm, targets.
        modules: torch module name to its tensors: `lora_A` [r, in], `lora_B` [out, r], `magnitude` [out] (DoRA).
    """

    facts: dict[str, Any]
    modules: dict[str, dict[str, Array]]

    @property
    def scale(self) -> float:
        return float(self.facts["scale"])

    def flat(self) -> dict[str, Array]:
        """Return `<module>.<part>` to array."""
        return {f"{module}.{part}": a for module, parts in self.modules.items() for part, a in parts.items()}


def read_adapter(path: Path) -> Adapter:
    """Read an interchange file.

    Raises:
        StageError: not a safetensors file, not an adapter, incomplete modules, or values that are not finite.
    """
    try:
        with safe_open(path, framework="np") as reader:
            metadata = reader.metadata() or {}
            tensors = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        hint = "train again, or restore the checkpoint"
        raise StageError(f"{path}: not a whole safetensors file: {error}", hint=hint) from None
    if "adapter" not in metadata:
        raise StageError(f"{path}: no `adapter` facts in the metadata", hint="give a checkpoint that `train` wrote")
    facts = _facts(path, metadata["adapter"])
    modules: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        modules[module][part] = array
    _check(path, facts, modules)
    return Adapter(facts, dict(sorted(modules.items())))


def _facts(path: Path, text: str) -> dict[str, Any]:
    hint = "give a checkpoint that `train` wrote"
    try:
        facts = json.loads(text)
        kind, rank, alpha, scale = facts["type"], facts["rank"], float(facts["alpha"]), float(facts["scale"])
    except (json.JSONDecodeError, TypeError, KeyError, ValueError) as error:
        raise StageError(f"{path}: `adapter` facts in the metadata are not whole: {error!r}", hint=hint) from None
    faults = []
    if kind not in ("lora", "dora"):
        faults.append(f"type: found {kind!r}, wanted lora or dora")
    if type(rank) is not int or rank < 1:
        faults.append(f"rank: found {rank!r}, wanted 1 or more")
    elif not math.isclose(scale, alpha / rank, rel_tol=1e-6):
        faults.append(f"scale: found {scale}, wanted alpha / rank = {alpha / rank}")
    if not isinstance(facts.get("targets"), list):
        faults.append("targets: missing")
    if faults:
        raise all_at_once(f"{path}: `adapter` facts in the metadata:", faults, hint=hint)
    return facts


def _check(path: Path, facts: dict[str, Any], modules: dict[str, dict[str, Array]]) -> None:
    wanted = {"lora_A", "lora_B"} | ({"magnitude"} if facts["type"] == "dora" else set())
    faults = []
    for module in facts["targets"]:
        if module not in modules:
            faults.append(f"{module}: missing, the metadata names it")
    for module, parts in modules.items():
        if module not in facts["targets"]:
            faults.append(f"{module}: not among the metadata's targets")
        if parts.keys() != wanted:
            faults.append(f"{module}: found {sorted(parts)}, wanted {sorted(wanted)}")
        for part, array in parts.items():
            if not np.isfinite(array).all():
                faults.append(f"{module}.{part}: holds values that are not finite")
    if faults:
        raise all_at_once(f"{path}: not a whole adapter:", faults, hint="train again, or restore the checkpoint")
