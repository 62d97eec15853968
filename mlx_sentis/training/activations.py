"""Activation checkpoints: every layer keeps its input only and is computed again in the backward pass.

`mx.checkpoint` lets the second forward pass begin when the first is done. MLX goes through a graph breadth first, as
wide as `mlx_sentis.blas` lets it, and would compute all layers again at once: nothing is saved then. Here the second
pass of a layer waits for the gradient of its outputs.
Prior art: Chen et al. 2016, arXiv 1604.06174.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from mlx_sentis.training.adapters import adapted_modules
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.prefix import ReadingCache, SegmentCache


def checkpoint_activations(model: CausalLM) -> None:
    """Let every layer be computed again in the backward pass.

    The layer objects stay what and where they are (names, adapters, files); only their class becomes one whose call
    goes through `mx.checkpoint`.
    """
    for layer in model.layers:
        plain = type(layer)
        layer.__class__ = type(plain.__name__, (plain,), {"__call__": _checkpointed(plain.__call__)})


def _checkpointed(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Return a layer's call that hands everything with a gradient to `computed_again` as an argument.

    That is its trained tensors, its input, and the keys and values of the tokens before it; what a closure holds
    is a constant to the gradient, as dropout's keys must be: both forward passes drop the same values.
    """

    def call(layer: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        trained = layer.trainable_parameters()
        dropping = [module for _, module in adapted_modules(layer) if module.dropout and module.training]
        seeds = [mx.random.randint(0, 2**31 - 1, (2,)).astype(mx.uint32) for _ in dropping]
        before = _before(cache)
        given = [] if before is None else [before.keys, before.values]
        stream = mx.default_stream(mx.default_device())

        def inner(trained: Any, x: mx.array, given: list[mx.array]) -> list[Any]:
            layer.update(trained)
            for module, seed in zip(dropping, seeds, strict=True):
                module._dropout_key = seed
            own = _stand_in(cache, given)
            with mx.stream(stream):  # the second time nobody says where: all passes would queue on one stream
                out = plain(layer, x, mask, own)
            return [out, own.keys, own.values] if isinstance(own, SegmentCache) else [out]

        out, *made = computed_again(inner)(trained, x, given)
        layer.update(trained)  # inner left its own tracers in the layer; a second pass needs the outer ones
        if made:
            cache.keys, cache.values = made
        return out

    return call


def computed_again(function: Callable[..., list[mx.array]]) -> Callable[..., Any]:
    """Return a function whose gradient keeps its arguments only, and computes it again once its outputs' is known.

    Args:
        function: of trees of arrays, everything that has a gradient among them.
    """

    def kept(*arguments: Any) -> Any:
        def of_arrays(*arrays: mx.array) -> list[mx.array]:
            each = iter(arrays)
            return function(*tree_map(lambda _: next(each), arguments))

        once = mx.custom_function(of_arrays)

        @once.vjp
        def again(primals: Sequence[mx.array], cotangents: Sequence[mx.array], outputs: Any) -> tuple[mx.array, ...]:
            late = mx.depends(list(primals), list(cotangents))
            found = mx.vjp(of_arrays, late, list(cotangents))[1]
            return tuple(mx.depends(found, found))  # together

        leaves: list[tuple[str, mx.array]] = tree_flatten(arguments)  # pyright: ignore
        return once(*(array for _, array in leaves))

    return kept


def _before(cache: Any) -> Any:
    """Return the cache that holds the keys and values a pass reads but does not make."""
    return cache.cache if isinstance(cache, ReadingCache) else getattr(cache, "parent", None)


def _stand_in(cache: Any, given: list[mx.array]) -> Any:
    """Return a copy of a cache that reads the given keys and values."""
    own = copy.copy(cache)
    if given:
        before = copy.copy(_before(cache))
        before.keys, before.values = given
        setattr(own, "cache" if isinstance(cache, ReadingCache) else "parent", before)
    return own
