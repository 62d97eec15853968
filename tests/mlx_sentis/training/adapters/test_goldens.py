"""Against recordings of another trainer's torch loop (see goldens/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlx_sentis.training.adapters.modules import Adapted
from weights_bridge.adapter_kinds import KINDS, kind_of

TYPES = ["lora", "dora-rows", "bora", "lora-xs", "dora-cols-xs"]
LAYERS = ["preprocess", "project_in", "project_out", "local"]


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("goldens") / "underfit.npz") as npz:
        return dict(npz)


def layer_of(weight: np.ndarray) -> Any:
    """A frozen layer with torch's weight, without a bias."""
    if weight.ndim == 3:
        conv = nn.Conv1d(weight.shape[1], weight.shape[0], weight.shape[2], bias=False)
        conv.weight = mx.array(np.ascontiguousarray(weight.swapaxes(1, 2)))
        return conv
    linear = nn.Linear(*weight.shape[::-1], bias=False)
    linear.weight = mx.array(weight)
    return linear


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("word", ["xs", "bora"])
def test_an_adapter_starts_with_the_same_norms_and_singular_vectors(
    recorded: dict[str, np.ndarray], word: str, layer: str
) -> None:
    start = {k.rpartition("/")[2]: v for k, v in recorded.items() if k.startswith(f"start/{word}/{layer}/")}
    kind = KINDS["dora-cols-xs" if word == "xs" else "bora"]
    adapted = Adapted(layer_of(start.pop("weight")), kind, 4, 1.0, mx.random.key(0))
    assert start.keys() == ({"U", "V", "magnitude"} if word == "xs" else {"magnitude_r", "magnitude_c"})
    for name, wanted in start.items():
        tolerance = 1e-4 if name in ("U", "V") else 1e-6  # another library's decomposition
        np.testing.assert_allclose(
            np.array(adapted[name]), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max()
        )


@pytest.mark.parametrize("name", TYPES)
def test_gradients_through_attached_norms_are_those_recorded(recorded: dict[str, np.ndarray], name: str) -> None:
    given = {k.removeprefix(f"conv/{name}/"): v for k, v in recorded.items() if k.startswith(f"conv/{name}/")}
    kind = kind_of(name)
    adapted = Adapted(layer_of(recorded["conv/weight"]), kind, 4, 1.5, mx.random.key(0), attached=True)
    for part in kind.parts:
        adapted[part] = mx.array(given[part])
    weight = np.array(adapted.effective_weight(), np.float64)
    velocity = given["velocity"].astype(np.float64)
    hidden = np.linalg.solve(np.eye(8) + weight, velocity).swapaxes(1, 2)  # velocity = conv(h) + h
    target = mx.array(recorded["conv/target"].swapaxes(1, 2))
    mask = mx.array(recorded["conv/loss_mask"].astype(np.float32))
    h = mx.array(hidden.astype(np.float32))

    def loss(parameters: Any) -> mx.array:
        adapted.update(parameters)
        error = mx.sum(mx.square(adapted(h) + h - target), axis=2) * mask
        return mx.mean(mx.sum(error, axis=1) / (8 * mx.sum(mask, axis=1) + 1e-8))

    gradients = mx.grad(loss)(adapted.trainable_parameters())
    wanted = {k.removeprefix("grad/"): v for k, v in given.items() if k.startswith("grad/")}
    assert wanted.keys() == kind.parts - {"U", "V"}
    for part, gradient in wanted.items():
        np.testing.assert_allclose(np.array(gradients[part]), gradient, rtol=0, atol=2e-5 * np.abs(gradient).max())
