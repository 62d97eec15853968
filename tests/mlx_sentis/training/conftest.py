"""Toy decoders with adapters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call

from weights_bridge.files import write_jsonl
from weights_bridge.settings import AdapterSettings


@pytest.fixture(scope="session")
def prepared(toy_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data of toy llama. Copy it before changing it."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = [{"prompt": f"Open gate number {i}", "completion": f"Gate {i} is open."} for i in range(40)]
    write_jsonl(folder / "rows.jsonl", rows)
    result = call("prepare", folder / "rows.jsonl", "--model", toy_model("llama"), "--out", folder / "data")
    assert result.exit_code == 0, result.output
    return folder / "data"


@pytest.fixture(scope="session")
def decoder(toy_model: Callable[[str], Path]) -> Callable[..., Any]:
    """Return a fresh toy decoder, with an adapter whose B and magnitude are not at their starting values."""

    def make(model_type: str = "llama", kind: str | None = "dora", *, moved: bool = True, **settings: Any) -> Any:
        from mlx_sentis.training.adapters import adapter_tensors, add_adapters
        from mlx_sentis.training.definitions import load_causal_lm
        from weights_bridge.model_folder import open_model_folder

        model = load_causal_lm(open_model_folder(toy_model(model_type)))
        if kind is not None:
            add_adapters(model, AdapterSettings(kind, **({"rank": 4, "alpha": 8.0} | settings)), seed=0)  # type: ignore
            if moved:
                move(model, adapter_tensors(model))
        return model

    return make


def move(model: Any, tensors: dict[str, Any]) -> None:
    """Give every adapter tensor other values, deterministically."""
    import mlx.core as mx

    rng = np.random.default_rng(11)
    changed = []
    for name, array in tensors.items():
        noise = rng.standard_normal(array.shape).astype(np.float32)
        new = np.array(array) * (1 + 0.1 * noise) if "magnitude" in name else np.array(array) + 0.05 * noise
        changed.append((name, mx.array(new.astype(np.float32))))
    model.network.load_weights(changed, strict=False)


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the prepared data that a test may train on and alter."""
    return Path(shutil.copytree(prepared, tmp_path / "run"))
