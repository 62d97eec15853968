"""Layouts against what torch's and MLX's own layers compute with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weights_bridge import layouts

LAYERS = {
    "conv1d": ("Conv1d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "conv2d": ("Conv2d", {"kernel_size": (3, 5), "stride": 2, "padding": 1}),
    "conv_transpose1d": ("ConvTranspose1d", {"kernel_size": 4, "stride": 2, "padding": 1}),
    "conv_transpose2d": ("ConvTranspose2d", {"kernel_size": (4, 3), "stride": 2, "padding": 1}),
}


def test_every_layout_has_its_layer() -> None:
    assert {"same", *LAYERS} == set(layouts.MLX_AXES)


@pytest.mark.parametrize("layout", LAYERS)
def test_a_convolution_of_torch_and_one_of_mlx_agree(layout: str) -> None:
    import mlx.core as mx
    import mlx.nn
    import torch

    name, settings = LAYERS[layout]
    torch.manual_seed(0)
    theirs: Any = getattr(torch.nn, name)(4, 6, **settings)
    ours: Any = getattr(mlx.nn, name)(4, 6, **settings)
    ours.weight = mx.array(layouts.mlx_from_torch(theirs.weight.detach().numpy(), layout))
    ours.bias = mx.array(theirs.bias.detach().numpy())
    x = torch.rand(2, 4, *((11, 13) if "2d" in layout else (11,)))
    wanted = theirs(x).detach().numpy()
    found = np.moveaxis(np.array(ours(mx.array(np.moveaxis(x.numpy(), 1, -1)))), -1, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rotary", [16, 8])
def test_interleaved_rows_rotate_as_the_halves_do(rotary: int) -> None:
    import mlx.core as mx
    import mlx.nn as nn

    rng, heads = np.random.default_rng(0), 3
    q, k = (rng.standard_normal((heads * 16, 10)).astype(np.float32) for _ in range(2))
    x = rng.standard_normal((1, 7, 10)).astype(np.float32)

    def scores(q_rows: Any, k_rows: Any, traditional: bool) -> Any:
        rope = nn.RoPE(rotary, traditional=traditional)
        turned = [rope(mx.array(x @ w.T).reshape(1, 7, heads, 16).transpose(0, 2, 1, 3)) for w in (q_rows, k_rows)]
        return np.array(turned[0] @ turned[1].swapaxes(-1, -2))

    wanted = scores(q, k, False)
    dealt = [layouts.interleaved_from_halves(w, heads, rotary) for w in (q, k)]
    np.testing.assert_allclose(scores(*dealt, True), wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(scores(q, k, True) - wanted).max() > 0.1  # without dealing out they differ
    for array, turned in zip((q, k), dealt, strict=True):
        np.testing.assert_array_equal(layouts.halves_from_interleaved(turned, heads, rotary), array)
    bias = np.arange(heads * 16, dtype=np.float32)
    assert layouts.interleaved_from_halves(bias, heads, rotary)[:4].tolist() == [0, rotary // 2, 1, rotary // 2 + 1]


@pytest.mark.parametrize("shape", [(6, 4, 3), (5, 7)])
def test_a_folded_weight_norm_is_torchs(shape: tuple[int, ...]) -> None:
    import torch
    from torch.nn.utils.parametrizations import weight_norm

    torch.manual_seed(0)
    layer = weight_norm(torch.nn.Conv1d(4, 6, 3) if len(shape) == 3 else torch.nn.Linear(7, 5))
    own = layer.parametrizations.weight
    with torch.no_grad():
        own.original0.mul_(1.7)
    folded = layouts.folded_weight_norm(own.original0.detach().numpy(), own.original1.detach().numpy())
    np.testing.assert_allclose(folded, layer.weight.detach().numpy(), rtol=3e-7)
