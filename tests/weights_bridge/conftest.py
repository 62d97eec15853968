"""Adapters of a toy model, made of numbers and not of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weights_bridge.adapter_kinds import KINDS
from weights_bridge.compare import Array
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.safetensors_writer import write_safetensors


def adapter_tensors(base: ModelFolder, kind: str, rank: int) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    tensors: dict[str, Array] = {}
    for module, (out, width) in base.architecture.linear_modules(base.config).items():
        for part, shape in KINDS[kind].shapes(out, width, rank).items():
            values = rng.uniform(0.5, 2, shape) if "magnitude" in part else rng.standard_normal(shape) / 8
            tensors[f"{module}.{part}"] = values.astype(np.float32)
    return tensors


def write_adapter(path: Path, tensors: dict[str, Array], facts: dict[str, Any] | None) -> Path:
    metadata = {} if facts is None else {"adapter": json.dumps(facts)}
    write_safetensors(path, {n: a.shape for n, a in tensors.items()}, tensors.items(), metadata)
    return path


@pytest.fixture
def made_adapter(toy_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Write an adapter of a toy model; `change` may spoil its tensors and facts first."""

    def make(
        model_type: str = "llama",
        kind: str = "dora",
        rank: int = 4,
        alpha: float = 8.0,
        change: Callable[[dict[str, Array], dict[str, Any]], object] = lambda tensors, facts: None,
    ) -> Path:
        base = open_model_folder(toy_model(model_type))
        tensors = adapter_tensors(base, kind, rank)
        targets = list(base.architecture.linear_modules(base.config))
        scale = KINDS[kind].scale(rank, alpha)
        facts = {"type": kind, "rank": rank, "alpha": alpha, "scale": scale, "targets": targets}
        change(tensors, facts)
        return write_adapter(tmp_path / f"{kind}-{rank}.safetensors", tensors, facts or None)

    return make


@pytest.fixture
def base(toy_model: Callable[[str], Path]) -> ModelFolder:
    """A model whose head is the embedding table."""
    return open_model_folder(toy_model("llama"))


@pytest.fixture
def untied(toy_model: Callable[[str], Path]) -> ModelFolder:
    """A model with a head of its own."""
    return open_model_folder(toy_model("qwen3"))
