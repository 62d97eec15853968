"""What tests of both libraries' adapters share: values of their fields, comparison, logits by transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weights_bridge.adapter_file import Adapter
from weights_bridge.errors import StageError
from weights_bridge.merge import merged_tensors
from weights_bridge.model_folder import ModelFolder

Q, UP = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"
IDS = [[5, 17, 101, 33, 250, 7, 81]]
NONSENSE: list[Any] = [
    True,
    "x",
    "(",
    0,
    -1,
    1.5,
    10**400,
    float("nan"),
    float("inf"),
    [1],
    ["x"],
    {"a": {}},
    [[]],
    None,
]


def merged_logits(base: ModelFolder, adapter: Adapter) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base.path, dtype=torch.float32)
    state = {name: torch.from_numpy(array) for name, array in merged_tensors(base, adapter)}
    model.load_state_dict(state, strict=False)
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.numpy()


def patterned(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    """Give one module another rank, two another alpha."""
    facts["ranks"], facts["alphas"] = {UP: 2}, {UP: 6.0, Q: 1.0}
    tensors[f"{UP}.lora_A"] = tensors[f"{UP}.lora_A"][:2].copy()
    tensors[f"{UP}.lora_B"] = tensors[f"{UP}.lora_B"][:, :2].copy()


def assert_same(found: Adapter, wanted: Adapter) -> None:
    assert {n: a.tobytes() for n, a in found.flat().items()} == {n: a.tobytes() for n, a in wanted.flat().items()}
    assert {n: a.tobytes() for n, a in found.saved.items()} == {n: a.tobytes() for n, a in wanted.saved.items()}
    assert [found.scale_of(m) for m in found.modules] == pytest.approx([wanted.scale_of(m) for m in wanted.modules])
    assert found.kind == wanted.kind


def not_read_as_anything_else(read: Callable[[], Adapter]) -> None:
    """Require that a configuration is refused, or gives an adapter that its own file holds."""
    try:
        adapter = read()
    except StageError:
        return
    assert all(np.isfinite(adapter.scale_of(module)) for module in adapter.modules)
    assert 0 <= adapter.facts["dropout"] < 1
