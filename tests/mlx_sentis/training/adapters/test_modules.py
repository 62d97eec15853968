"""One adapted layer: its formula in float64, the identity at the start, gradients, dropout, every width of weights."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from mlx_sentis.training.adapters.modules import Adapted
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.merge import merged_weight

QUANTISED = [("affine", bits, 32) for bits in (2, 3, 4, 5, 6, 8)]
QUANTISED += [("affine", 4, 64), ("affine", 4, 128), ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
LAYERS = ["linear", "conv of 1 tap", "conv of 3 taps", "grouped conv", "quantised"]


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def flat(tree: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(tree))  # pyright: ignore


def made_layer(word: str, out: int = 12, width: int = 8, seed: int = 0) -> Any:
    """A frozen layer with seeded weights and a bias."""
    if word == "quantised":
        width = 32 * -(-width // 32)
    if word == "grouped conv":
        layer: Any = nn.Conv1d(2 * width, 2 * out, 3, padding=1, groups=2)
    elif "conv" in word:
        taps = 1 if "1 tap" in word else 3
        layer = nn.Conv1d(width, out, taps, stride=2, padding=taps // 2, dilation=2 if taps > 1 else 1)
    else:
        layer = nn.Linear(width, out)
    layer.weight = mx.array(rng(seed).standard_normal(layer.weight.shape).astype(np.float32))
    layer.bias = mx.array(rng(seed + 1).standard_normal(layer.bias.shape).astype(np.float32))
    return nn.QuantizedLinear.from_linear(layer, 32, 4) if word == "quantised" else layer


def adapted_layer(
    layer: Any, kind: str, rank: int = 3, scale: float = 1.5, *, moved: bool = True, **more: Any
) -> Adapted:
    adapted = Adapted(layer, KINDS[kind], rank, scale, mx.random.key(7), **more)
    if moved:
        for number, (name, array) in enumerate(sorted(flat(adapted.trainable_parameters()).items())):
            noise = rng(100 + number).standard_normal(array.shape).astype(np.float32)
            adapted[name] = array * (1 + 0.2 * noise) if "magnitude" in name else array + 0.3 * noise
    return adapted


def torch_weight(layer: Any) -> np.ndarray:
    """The frozen weight in torch's layout, dequantised."""
    if isinstance(layer, nn.QuantizedLinear):
        options = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
        parts = [layer.scales, layer.get("biases")]
        if layer.mode == "affine":
            parts = [part.astype(mx.float32) for part in parts]
        return np.array(mx.dequantize(layer.weight, *parts, **options).astype(mx.float32))
    weight = np.array(layer.weight)
    return weight.swapaxes(1, 2) if weight.ndim == 3 else weight


def merged_layer(adapted: Adapted) -> Any:
    """A plain layer with the merged weight, by `weights_bridge` in float64."""
    base: Any = adapted.base
    parts = {name: np.array(adapted[name]) for name in adapted.kind.parts}
    merged = merged_weight(torch_weight(base), parts, adapted.kind, adapted.scale)
    if isinstance(base, nn.Conv1d):
        channels = base.weight.shape[2] * base.groups
        plain: Any = nn.Conv1d(channels, *base.weight.shape[:2], base.stride, base.padding, base.dilation, base.groups)
        plain.weight = mx.array(np.ascontiguousarray(merged.swapaxes(1, 2)))
    else:
        plain = nn.Linear(*merged.shape[::-1])
        plain.weight = mx.array(merged)
    plain.bias = base.bias
    return plain


def input_of(layer: Any, seed: int = 5) -> mx.array:
    if isinstance(layer, nn.Conv1d):
        shape = (2, 9, layer.weight.shape[2] * layer.groups)
    else:
        bits = layer.bits if isinstance(layer, nn.QuantizedLinear) else 32
        shape = (2, 9, layer.weight.shape[1] * 32 // bits)
    return mx.array(rng(seed).standard_normal(shape).astype(np.float32))


def close(found: Any, wanted: Any, tolerance: float) -> None:
    found, wanted = np.array(found, np.float64), np.array(wanted, np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def condition_of(adapted: Any) -> float:
    """By how much rounding grows where the change takes a row or column of W away: (‖W‖² + ‖U D‖²) / ‖V‖²."""
    down, up = (np.array(part, np.float64) for part in adapted.factors_of_change())
    weight = torch_weight(adapted.base)
    weight, change = weight.reshape(weight.shape[0], -1).astype(np.float64), up @ down
    parts = [np.square(matrix) for matrix in (weight, change, weight + change)]
    sums = [[part.sum(axis=axis) for part in parts] for axis in (0, 1)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return max(((w + c) / v).max() for w, c, v in sums)


@pytest.mark.parametrize("word", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_before_training_is_its_base_layer(kind: str, word: str) -> None:
    layer = made_layer(word)
    x = input_of(layer)
    close(adapted_layer(layer, kind, moved=False)(x), layer(x), 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    word=st.sampled_from(LAYERS),
    out=st.integers(1, 24),
    width=st.integers(1, 40),
    rank=st.integers(1, 6),
    scale=st.floats(0.05, 8),
    seed=st.integers(0, 99),
)
def test_a_trained_layer_is_the_merged_layer(
    kind: str, word: str, out: int, width: int, rank: int, scale: float, seed: int
) -> None:
    layer = made_layer(word, out, width, seed)
    rank = min(rank, out, width)
    adapted = adapted_layer(layer, kind, rank, scale)
    x = input_of(layer)
    merged = merged_layer(adapted)
    condition = condition_of(adapted)
    assume(condition < 30)
    close(adapted(x), merged(x), 5e-6 * condition)
    weight = torch_weight(merged)
    close(adapted.effective_weight(), weight.reshape(weight.shape[0], -1), 5e-6 * condition)
    assert np.abs(np.array(adapted(x) - layer(x))).max() > 1e-4


@pytest.mark.parametrize(("mode", "bits", "group"), QUANTISED)
@pytest.mark.parametrize("kind", ["lora", "dora", "dora-cols", "bora", "bora-xs"])
def test_every_width_and_mode_of_quantised_weights(kind: str, mode: str, bits: int, group: int) -> None:
    dense = nn.Linear(128, 48)
    dense.weight = mx.array(rng(3).standard_normal((48, 128)).astype(np.float32))
    layer = nn.QuantizedLinear.from_linear(dense, group, bits, mode=mode)
    x = input_of(layer)
    close(adapted_layer(layer, kind, moved=False)(x), layer(x), 1e-6)
    adapted = adapted_layer(layer, kind)
    assert adapted.matrix.width == 128
    close(adapted(x), merged_layer(adapted)(x), 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_base_takes_no_gradient_and_its_adapter_does(kind: str) -> None:
    adapted = adapted_layer(made_layer("quantised"), kind)
    x = input_of(adapted.base)
    _, gradients = nn.value_and_grad(adapted, lambda x: mx.sum(adapted(x) ** 2))(x)
    assert set(flat(gradients)) == KINDS[kind].parts - {"U", "V"}
    assert all(np.abs(np.array(gradient)).max() > 0 for gradient in flat(gradients).values())


def by_torch(adapted: Adapted, x: mx.array) -> dict[str, np.ndarray]:
    """Gradients of Σ y² by torch autograd in float64, through the built weight; `x` among them."""
    import torch

    kind, base = adapted.kind, adapted.base
    own = {name: torch.tensor(np.array(adapted[name]), dtype=torch.float64) for name in kind.parts}
    own["x"] = torch.tensor(np.array(x), dtype=torch.float64)
    for name, tensor in own.items():
        tensor.requires_grad_(name not in ("U", "V"))
    w0 = torch.tensor(torch_weight(base), dtype=torch.float64)
    change = own["U"] @ own["M_xs"] @ own["V"].T if kind.fixed_bases else own["lora_B"] @ own["lora_A"]
    v = w0.flatten(1) + adapted.scale * change
    constant = (lambda norm: norm) if adapted.attached else (lambda norm: norm.detach())
    if kind.rows:
        v = own[kind.row_magnitude][:, None] * v / constant(v.norm(dim=1, keepdim=True))
    if kind.columns:
        v = v * (own[kind.column_magnitude] / constant(v.norm(dim=0, keepdim=True)))
    v, bias = v.reshape(w0.shape), torch.tensor(np.array(base.bias), dtype=torch.float64)
    if v.ndim == 3:
        options = (base.stride, base.padding, base.dilation, base.groups)
        y = torch.nn.functional.conv1d(own["x"].transpose(1, 2), v, bias, *options).transpose(1, 2)
    else:
        y = own["x"] @ v.T + bias
    (y**2).sum().backward()
    return {name: tensor.grad.numpy() for name, tensor in own.items() if tensor.grad is not None}


@pytest.mark.parametrize(
    ("kind", "word", "attached"),
    [(k, w, a) for k, w, a in itertools.product(KINDS, LAYERS, (False, True)) if KINDS[k].has_norm or not a],
)
def test_gradients_are_those_of_torch_in_float64(kind: str, word: str, attached: bool) -> None:
    adapted = adapted_layer(made_layer(word), kind, attached=attached)
    x = input_of(adapted.base)

    def loss(parameters: Any, x: mx.array) -> mx.array:
        adapted.update(parameters)
        return mx.sum(adapted(x) ** 2)

    gradients, at_input = mx.grad(loss, argnums=(0, 1))(adapted.trainable_parameters(), x)
    wanted = by_torch(adapted, x)
    found = flat(gradients) | {"x": at_input}
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        close(array, wanted[name], 2e-5)


def test_attached_and_detached_norms_give_different_gradients_and_the_same_output() -> None:
    layer = made_layer("linear")
    x = input_of(layer)
    found = []
    for attached in (False, True):
        adapted = adapted_layer(layer, "bora", attached=attached)
        _, gradients = nn.value_and_grad(adapted, lambda x, a=adapted: mx.sum(a(x) ** 2))(x)
        found.append((np.array(adapted(x)), np.array(gradients["lora_B"])))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert np.abs(found[0][1] - found[1][1]).max() > 0.01 * np.abs(found[0][1]).max()


def test_norms_hold_over_several_chunks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlx_sentis.training.adapters.frozen.CHUNK", 20)  # 2 rows of 8 numbers at a time
    adapted = adapted_layer(made_layer("linear", 13, 8), "bora", attached=True)
    assert len(list(adapted.matrix.chunks())) == 7
    x = input_of(adapted.base)
    close(adapted(x), merged_layer(adapted)(x), 1e-5)


@pytest.mark.parametrize("kind", ["dora", "bora", "lora-xs"])
def test_the_passes_of_a_step_share_what_hangs_on_no_input(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapted: Any = adapted_layer(made_layer("linear"), kind, attached=True)
    made: list[int] = []
    original = Adapted.factors_of_change
    monkeypatch.setattr(Adapted, "factors_of_change", lambda self: made.append(1) or original(self))
    monkeypatch.setattr(Adapted, "_of_norms", lambda self: original(self))
    inputs = [input_of(adapted.base, seed) for seed in (5, 6, 7)]

    def of_passes(inputs: list[mx.array]) -> mx.array:
        return sum((mx.sum(adapted(x) ** 2) for x in inputs), start=mx.array(0.0))

    def of_one(inputs: list[mx.array]) -> mx.array:
        return mx.sum(adapted(mx.concatenate(inputs)) ** 2)

    shared = flat(nn.value_and_grad(adapted, of_passes)(inputs)[1])
    assert len(made) == 1
    for name, gradient in flat(nn.value_and_grad(adapted, of_one)(inputs)[1]).items():
        close(shared[name], gradient, 1e-5)


@pytest.mark.parametrize("kind", ["dora", "dora-cols", "bora", "lora", "bora-xs"])
def test_a_changed_array_is_never_answered_with_the_factors_of_the_old_one(kind: str) -> None:
    adapted: Any = adapted_layer(made_layer("linear"), kind)
    x = input_of(adapted.base)
    before = adapted(x)
    for name, array in flat(adapted.trainable_parameters()).items():
        adapted[name] = array * mx.array(rng(3).uniform(0.5, 2, array.shape).astype(np.float32))
        close(adapted(x), merged_layer(adapted)(x), 1e-5)
        assert np.abs(np.array(adapted(x) - before)).max() > 1e-3, name
        adapted[name] = array
        close(adapted(x), before, 1e-6)
    adapted.base.weight = adapted.base.weight * 2
    assert np.abs(np.array(adapted(x) - before)).max() > 1e-3


def test_a_row_that_the_adapter_takes_away_gives_finite_values() -> None:
    layer = made_layer("linear", 4, 4)
    adapted = adapted_layer(layer, "bora", 4, 1.0, attached=True)
    adapted.lora_B, adapted.lora_A = mx.eye(4), -layer.weight
    value, gradients = nn.value_and_grad(adapted, lambda x: mx.sum(adapted(x) ** 2))(input_of(layer))
    assert np.isfinite(np.array(value)) and all(np.isfinite(np.array(g)).all() for g in flat(gradients).values())


@pytest.mark.parametrize("kind", ["lora", "bora", "lora-xs"])
def test_dropout_is_off_outside_of_training_and_a_stored_key_repeats_it(kind: str) -> None:
    layer = made_layer("linear")
    dropping, plain = adapted_layer(layer, kind, dropout=0.5), adapted_layer(layer, kind)
    x = input_of(layer)
    dropping.eval()
    np.testing.assert_array_equal(np.array(dropping(x)), np.array(plain(x)))
    dropping.train()
    outputs = []
    for seed in (3, 3, 4):
        mx.random.seed(seed)
        outputs.append(np.array(dropping(x)))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-3
    none = adapted_layer(layer, kind, dropout=0.0)
    mx.random.seed(3)
    before = np.array(mx.random.state[0])
    np.testing.assert_array_equal(np.array(none.train()(x)), np.array(plain(x)))
    np.testing.assert_array_equal(np.array(mx.random.state[0]), before)  # no random number is drawn


def test_dropout_keeps_the_mean_of_the_adapters_part() -> None:
    layer = made_layer("linear")
    dropping, plain = adapted_layer(layer, "lora", dropout=0.3), adapted_layer(layer, "lora")
    x = mx.broadcast_to(input_of(layer)[:, :1], (2, 4000, 8))
    mx.random.seed(1)
    mean = np.array(dropping(x)).mean(axis=1)
    np.testing.assert_allclose(mean, np.array(plain(x))[:, 0], atol=0.15)


@pytest.mark.parametrize("half", [mx.bfloat16, mx.float16])
def test_a_half_precision_base_keeps_its_type_and_the_adapter_stays_fp32(half: mx.Dtype) -> None:
    layer = made_layer("linear")
    layer.weight, layer.bias = layer.weight.astype(half), layer.bias.astype(half)
    x = input_of(layer).astype(half)
    adapted = adapted_layer(layer, "dora", moved=False)
    assert adapted(x).dtype == half
    assert {array.dtype for array in flat(adapted.trainable_parameters()).values()} == {mx.float32}
    close(adapted(x).astype(mx.float32), layer(x).astype(mx.float32), 2e-2)


@pytest.mark.parametrize("rank", [3, 6])  # below and above `WIDE_FROM` rows: MLX's kernel, and a product made wide
@pytest.mark.parametrize("half", [mx.bfloat16, mx.float16])
def test_quantised_half_precision_weights_start_at_the_base_and_train_in_fp32(half: mx.Dtype, rank: int) -> None:
    dense = made_layer("linear", 48, 64)
    dense.weight = dense.weight.astype(half)
    layer = nn.QuantizedLinear.from_linear(dense, 32, 4)
    x = input_of(layer)
    for rows in (1, 9):  # the same for the rows of the input
        adapted = adapted_layer(layer, "bora", rank, moved=False)
        close(adapted(x[:, :rows]), layer(x[:, :rows]), 1e-6)
        moved = adapted_layer(layer, "bora", rank)
        close(moved(x[:, :rows]), merged_layer(moved)(x[:, :rows]), 1e-5)
