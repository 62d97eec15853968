"""Budgets are data with provenance: one TOML per architecture that differs from `default.toml`."""

from __future__ import annotations

import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import Any

from weights_bridge.errors import all_at_once

GATES = ("forward", "backward", "edge_a", "edge_b", "edge_ab", "emulator", "stored_fp16", "sequence")
PROVENANCE = ("cause", "measured", "date")


@dataclass(frozen=True)
class Budgets:
    """What an architecture must reach, in dB of PSNR (see `weights_bridge.compare`).

    Attributes:
        forward_db: gate A0, logits and hidden states, MLX against torch.
        backward_db: gate A0, gradients, MLX against torch.
        edge_a_db: edge A, every graph output, ONNX Runtime against the original.
        edge_b_db: edge B, every graph output, Sentis against ONNX Runtime.
        edge_ab_db: edge A after B, every graph output, Sentis against the original.
        emulator_db: every graph output, what the emulator predicted against what Sentis computed.
        stored_fp16_db: what rounding the weights to fp16 may cost the logits (fp16 exports only), torch against torch.
        sequence_db: every step of a streaming graph over a whole signal, against the full reference.
        provenance: gate to `cause`, `measured`, `date` and `file`.
    """

    forward_db: float
    backward_db: float
    edge_a_db: float
    edge_b_db: float
    edge_ab_db: float
    emulator_db: float
    stored_fp16_db: float
    sequence_db: float
    provenance: dict[str, dict[str, str]]


def load_budgets(model_type: str) -> Budgets:
    """Return the budgets of an architecture: its own file's entries over the defaults.

    Raises:
        StageError: a file has an unknown gate, or an entry lacks its number or its provenance.
    """
    entries = _read("default.toml") | _read(f"{model_type}.toml")
    numbers = {f"{gate}_db": float(entries[gate]["db"]) for gate in GATES}
    provenance = {gate: {key: str(entries[gate][key]) for key in (*PROVENANCE, "file")} for gate in GATES}
    return Budgets(**numbers, provenance=provenance)


def _read(name: str) -> dict[str, dict[str, Any]]:
    file = importlib.resources.files(__name__) / name
    if not file.is_file():
        return {}
    entries = tomllib.loads(file.read_text(encoding="utf-8"))
    faults = [f"{gate}: no such gate, known: {', '.join(GATES)}" for gate in entries.keys() - set(GATES)]
    for gate, entry in entries.items():
        faults += [f"{gate}.{key}: missing" for key in ("db", *PROVENANCE) if not entry.get(key)]
        entry["file"] = name
    if faults:
        raise all_at_once(f"budgets/{name}:", faults, hint="a budget without its cause is a guess: state where from")
    return entries
