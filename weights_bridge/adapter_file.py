"""The adapter's interchange file: `<torch module>.<tensor>` in fp32, facts in the metadata.

The tensors of each kind are those of `adapter_kinds.Kind.shapes`. The fixed bases U and V of the -XS kinds are in the
file too: two libraries' singular vectors differ where singular values are close, so a file without them is not whole.
A full fine-tune is a file of the kind `full`, with the model's own tensors under their own names. Beside an adapter,
`saved` names whole tensors that take the place of the model's (PEFT's `modules_to_save`).

Legend: `r` rank, `in`/`out` the sides of the weight as a matrix.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weights_bridge.adapter_kinds import FULL, KINDS, Kind, kind_of
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.safetensors_reader import open_safetensors

ADAPTER = "adapter.safetensors"  # its name in a checkpoint
IMPORTED = "imported"  # the checkpoint that came from elsewhere
HINT = "give a checkpoint that `train` wrote"
MARKS = {  # what only one way of naming has in its names
    "stable-audio-3 parametrizations": r"\.parametrizations\.weight\.",
    "PEFT": r"^base_model\.model\.",
    "LyCORIS": r"\.(hada_w[12]_[ab]|hada_t[12]|lokr_w[12](_[ab])?|lokr_t2|oft_blocks|on_input|diff)$",
    "kohya": r"^lora_(unet|te|te1|te2|te3|transformer|prior)_",
    "ComfyUI": r"^(diffusion_model|text_encoders)\..*\.(lora_(A|B|up|down)|diff|alpha|dora_scale)\b",
    "diffusers": r"^(unet|transformer|text_encoder(_2)?)\..*lora|_lora\.(down|up)\.|\.lora_linear_layer\.",
}


@dataclass(frozen=True)
class Adapter:
    """An adapter, read.

    Attributes:
        facts: type, rank, alpha, scale, norm, dropout, targets; ranks and alphas of the modules that differ; base.
        modules: torch module name to its tensors.
        saved: torch tensor name to a whole tensor in the place of the model's.
    """

    facts: dict[str, Any]
    modules: dict[str, dict[str, Array]]
    saved: dict[str, Array] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return self.facts["type"] == FULL

    @property
    def kind(self) -> Kind:
        return kind_of(self.facts["type"])

    @property
    def scale(self) -> float:
        return float(self.facts["scale"])

    def rank_of(self, module: str) -> int:
        """Return r of one module."""
        return rank_of(self.facts, module)

    def scale_of(self, module: str) -> float:
        """Return s of one module."""
        return self.kind.scale(self.rank_of(module), alpha_of(self.facts, module))

    def flat(self) -> dict[str, Array]:
        """Return `<module>.<part>` to array."""
        return {f"{module}.{part}": a for module, parts in self.modules.items() for part, a in parts.items()}


def rank_of(facts: dict[str, Any], module: str) -> int:
    """Return r of one module by a file's facts."""
    return int((facts.get("ranks") or {}).get(module, facts["rank"]))


def alpha_of(facts: dict[str, Any], module: str) -> float:
    """Return alpha of one module by a file's facts."""
    return float((facts.get("alphas") or {}).get(module, facts["alpha"]))


def adapter_of(run: Path, which: str = "best") -> Path:
    """Return the adapter file of a run's checkpoint.

    Args:
        run: the run folder.
        which: `best`, `last`, `imported` or a step.

    Raises:
        StageError: no such checkpoint.
    """
    path = run / "checkpoints" / which / ADAPTER
    if not path.is_file():
        known = sorted(folder.name for folder in (run / "checkpoints").glob("[!.]*") if (folder / ADAPTER).is_file())
        hint = f"known: {', '.join(known)}" if known else "run `mlx-sentis train` first"
        raise StageError(f"{path}: no such checkpoint", hint=hint)
    return path


def read_adapter(path: Path) -> Adapter:
    """Read an interchange file.

    Raises:
        StageError: not a safetensors file, not an adapter, incomplete modules, or values that are not finite.
    """
    file = open_safetensors(path)
    if "adapter" not in file.metadata:
        raise StageError(f"{path}: no `adapter` facts in the metadata{_written_as(list(file.entries))}", hint=HINT)
    facts = _facts(path, file.metadata["adapter"])
    tensors = dict(file.tensors())
    modules: dict[str, dict[str, Array]] = defaultdict(dict)
    saved = {name: tensors.pop(name) for name in facts.get("saved") or [] if name in tensors}
    if faults := [f"{name}: missing, the metadata names it" for name in set(facts.get("saved") or []) - saved.keys()]:
        raise all_at_once(f"{path}: not a whole adapter:", faults, hint="train again, or restore the checkpoint")
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        modules[module][part] = array
    _check(path, facts, modules)
    if faults := [f"{name}: holds values that are not finite" for name, a in saved.items() if not np.isfinite(a).all()]:
        raise all_at_once(f"{path}: not a whole adapter:", faults, hint="train again, or restore the checkpoint")
    return Adapter(facts, dict(sorted(modules.items())), saved)


def saved_names(path: Path) -> list[str]:
    """Return the names of the whole tensors in an interchange file; none where it is somebody else's."""
    file = open_safetensors(path)
    facts = json.loads(file.metadata.get("adapter", "{}"))
    return [name for name in facts.get("saved") or [] if name in file.entries]


def naming_scheme(names: Iterable[str]) -> str | None:
    """Return whose way of naming adapter tensors a file follows, None when nobody's we know.

    Args:
        names: the file's tensor names.
    """
    schemes = {
        "mlx-sentis": (".lora_A", ".lora_B", ".M_xs", ".magnitude", ".magnitude_r", ".magnitude_c"),
        "mlx-lm": (".lora_a", ".lora_b", ".m"),
        "PEFT": (".lora_A.weight", ".lora_B.weight", ".lora_A.default.weight", ".lora_B.default.weight"),
        "kohya": (".lora_down.weight", ".lora_up.weight"),
        "diffusers": (".lora.down.weight", ".lora.up.weight"),
    }
    listed = list(names)
    for scheme, mark in MARKS.items():
        if any(re.search(mark, name) for name in listed):
            return scheme
    counts = {scheme: sum(name.endswith(ends) for name in listed) for scheme, ends in schemes.items()}
    best = max(counts, key=lambda scheme: counts[scheme])
    return best if counts[best] else None


def _written_as(names: list[str]) -> str:
    scheme = naming_scheme(names)
    return f"; its tensors are named as by {scheme}" if scheme not in (None, "mlx-sentis") else ""


def _facts(path: Path, text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
        rank, alpha, scale = facts["rank"], float(facts["alpha"]), float(facts["scale"])
        kind, targets = facts["type"], facts["targets"]
        ranks, alphas = dict(facts.get("ranks") or {}), dict(facts.get("alphas") or {})
    except (json.JSONDecodeError, TypeError, KeyError, ValueError) as error:
        raise StageError(f"{path}: `adapter` facts in the metadata are not whole: {error!r}", hint=HINT) from None
    faults = []
    if kind == FULL and isinstance(targets, list):
        return facts
    if kind not in KINDS:
        faults.append(f"type: found {kind!r}, wanted {', '.join(KINDS)} or {FULL}")
    if type(rank) is not int or rank < 1:
        faults.append(f"rank: found {rank!r}, wanted 1 or more")
    elif not math.isfinite(alpha):
        faults.append(f"alpha: found {alpha}, wanted a finite number")
    elif kind in KINDS and not math.isclose(scale, wanted := KINDS[kind].scale(rank, alpha), rel_tol=1e-6):
        faults.append(f"scale: found {scale}, wanted {wanted} of alpha {alpha} and rank {rank}")
    if not isinstance(targets, list):
        faults.append("targets: missing")
    else:
        known = set(targets)
        faults += [f"{n}: has a rank or an alpha and is no target" for n in {*ranks, *alphas} - known]
    faults += [f"ranks: found {r!r} for {n}" for n, r in ranks.items() if type(r) is not int or r < 1]
    faults += [f"alphas: found {a!r} for {n}" for n, a in alphas.items() if not isinstance(a, int | float) or not a > 0]
    if facts.get("norm", "detached") not in ("detached", "attached"):
        faults.append(f"norm: found {facts['norm']!r}, wanted detached or attached")
    if faults:
        raise all_at_once(f"{path}: `adapter` facts in the metadata:", faults, hint=HINT)
    return facts


def _check(path: Path, facts: dict[str, Any], modules: dict[str, dict[str, Array]]) -> None:
    is_full = facts["type"] == FULL
    listed = {f"{module}.{part}" for module, parts in modules.items() for part in parts} if is_full else modules.keys()
    targets = set(facts["targets"])
    faults = [f"{name}: missing, the metadata names it" for name in targets - listed]
    faults += [f"{name}: not among the metadata's targets" for name in listed - targets]
    for module, parts in modules.items():
        if not is_full:
            faults += _part_faults(facts, module, parts)
        faults += [
            f"{module}.{part}: holds values that are not finite"
            for part, array in parts.items()
            if not np.isfinite(array).all()
        ]
    if faults:
        raise all_at_once(f"{path}: not a whole adapter:", faults, hint="train again, or restore the checkpoint")


def _part_faults(facts: dict[str, Any], module: str, parts: dict[str, Array]) -> list[str]:
    """Return what is wrong with a module's tensors among themselves; whether they fit a model is `merge.check_fit`."""
    kind, rank = kind_of(facts["type"]), rank_of(facts, module)
    if parts.keys() != kind.parts:
        return [f"{module}: found {sorted(parts)}, wanted {sorted(kind.parts)}"]
    if kind.fixed_bases and parts["M_xs"].shape != (rank, rank):
        return [f"{module}.M_xs: found {parts['M_xs'].shape}, wanted {(rank, rank)}"]
    return []
