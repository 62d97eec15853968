"""Bugs of adapters and of the backward pass: scales, transposes, conventions, lost gradients, shared prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parity.a0_miss import BETWEEN, NORM
from parity.gate_request import BACKWARD
from parity.mutations.registry import calling, changed, middle, mutation, require


def adapted(model: Any) -> dict[str, Any]:
    """Return torch name to adapted module.

    Raises:
        DoesNotApplyError: all weights were trained, there is no adapter.
    """
    from mlx_sentis.training.adapters.model import adapted_modules

    found = dict(adapted_modules(model.network))
    require(found, "no adapter")
    return found


def place_in(names: list[str], model: Any) -> str:
    """Return the first of these modules' layers in the order of computation."""
    from parity.a0_compare import place_of

    return min((place_of(name) for name in names), key=lambda place: int(place.split()[1]))


@mutation("adapter transposed")
def _adapter_transposed(model: Any) -> Iterator[str]:
    square = {n: m for n, m in adapted(model).items() if "lora_A" in m and m.matrix.out == m.matrix.width}
    require(square, "no square matrix with an A and a B: another shape would not load")
    name, module = list(square.items())[-1]
    with changed(module, lora_A=module.lora_B.T, lora_B=module.lora_A.T):
        yield place_in([name], model)


@mutation("alpha taken as the scale")
def _alpha_as_scale(model: Any) -> Iterator[str]:
    modules = adapted(model)
    alphas = {n: m.scale * _rank(m) ** (0.5 if m.kind.root_scale else 1) for n, m in modules.items()}
    require(any(alphas[n] != m.scale for n, m in modules.items()), "rank 1: alpha is the scale")
    scales = {name: module.scale for name, module in modules.items()}
    for name, module in modules.items():
        module.scale = alphas[name]
    try:
        yield place_in(list(modules), model)
    finally:
        for name, module in modules.items():
            module.scale = scales[name]


def _rank(module: Any) -> int:
    return (module["M_xs"] if "M_xs" in module else module["lora_A"]).shape[0]


@mutation("adapter left out of one layer")
def _adapter_dropped(model: Any) -> Iterator[str]:
    name, module = list(adapted(model).items())[-1]
    part = "M_xs" if "M_xs" in module else "lora_B"
    with changed(module, **{part: module[part] * 0}):
        yield place_in([name], model)


@mutation("magnitude detached", BACKWARD)
def _magnitude_detached(model: Any) -> Iterator[str]:
    import mlx.core as mx

    name, module = list(adapted(model).items())[-1]
    require(module.kind.has_norm, "no magnitudes")
    factors = module.factors
    stopped = lambda right=None: tuple(f if f is None else mx.stop_gradient(f) for f in factors(right))  # noqa: E731
    module.factors = stopped
    try:
        yield place_in([name], model)
    finally:
        del module.factors


@mutation("norm attached for detached, or the other way round", BACKWARD)
def _norm_convention(model: Any) -> Iterator[str]:
    modules = adapted(model)
    require(all(module.kind.has_norm for module in modules.values()), "no norms")
    for module in modules.values():
        module.attached = not module.attached
    try:
        yield NORM
    finally:
        for module in modules.values():
            module.attached = not module.attached


@mutation("positions behind a shared prefix one too high", BACKWARD)
def _prefix_offset(model: Any) -> Iterator[str]:
    from mlx_sentis.training import prefix

    cache = prefix.SegmentCache
    start, mask = cache.__init__, cache.make_mask

    def shifted(self: Any, parent: Any = None) -> None:
        start(self, parent)
        self.offset += parent is not None

    def same_mask(self: Any, length: int, return_array: bool = False, window_size: int | None = None) -> Any:
        return prefix.create_causal_mask(
            length, offset=self.offset - (self.parent is not None), window_size=window_size
        )

    cache.__init__, cache.make_mask = shifted, same_mask
    try:
        yield BETWEEN
    finally:
        cache.__init__, cache.make_mask = start, mask


@mutation("a layer's gradient halved", BACKWARD)
def _gradient_halved(model: Any) -> Iterator[str]:
    import mlx.core as mx

    at, layer = middle(model)
    with calling(layer.mlp, lambda own, x: own(0.5 * x + 0.5 * mx.stop_gradient(x))):
        yield f"layer {at}"
