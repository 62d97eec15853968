"""Bugs of the model's definition: rotary positions, masks, norms, scales, heads, biases, order of layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from parity.mutations.registry import calling, changed, head_width, middle, mutation, require

FUSED = "queries, keys and values are one matrix"


def _rotating(model: Any) -> tuple[int, Any]:
    """Return the layer that rotary bugs go into, with its number: SmolLM3's middle one may rotate nothing."""
    from weights_bridge.model_config import rotary_layers

    turned, (at, _) = rotary_layers(model.folder.config), middle(model)
    require(any(turned), "no rotary embeddings")
    at = at if turned[at] else turned.index(True)
    return at, model.layers[at]


@mutation("rotary base")
def _rotary_base(model: Any) -> Iterator[str]:
    at, layer = _rotating(model)
    rope = layer.self_attn.rope
    values = {"base": rope.base / 2} if hasattr(rope, "base") else {"_freqs": rope._freqs * 2}
    with changed(rope, **values):
        yield f"layer {at}"


@mutation("rotary pairs: neighbours, not halves")
def _rotary_layout(model: Any) -> Iterator[str]:
    at, layer = _rotating(model)
    with changed(layer.self_attn.rope, traditional=not layer.self_attn.rope.traditional):
        yield f"layer {at}"


@mutation("mask one token late")
def _mask_off_by_one(model: Any) -> Iterator[str]:
    at, _ = middle(model)
    with _masked(model, at, lambda query, key: key <= query + 1):
        yield f"layer {at}"


@mutation("sliding window one token short")
def _window_off_by_one(model: Any) -> Iterator[str]:
    from weights_bridge.model_folder import layer_kinds

    kinds = layer_kinds(model.folder.config)
    require("sliding_attention" in kinds, "no sliding layers")
    at, window = kinds.index("sliding_attention"), model.folder.config["sliding_window"]
    with _masked(model, at, lambda query, key: (key <= query) & (key > query - (window - 1))):
        yield f"layer {at}"


@contextmanager
def _masked(model: Any, at: int, seen: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Give one layer another mask: `seen(query, key)` of positions."""
    import mlx.core as mx

    class Masked:
        def __init__(self, layer: Any) -> None:
            self._layer = layer

        def __call__(self, x: Any, mask: Any = None, cache: Any = None) -> Any:
            query, key = mx.arange(x.shape[1])[:, None], mx.arange(x.shape[1])[None]
            return self._layer(x, seen(query, key), cache)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._layer, name)

    inner = model.network.model
    layers = list(inner.layers)
    with changed(inner, layers=[*layers[:at], Masked(layers[at]), *layers[at + 1 :]]):
        yield


@mutation("norm of weight, not of 1 + weight, or the other way round")
def _norm_offset(model: Any) -> Iterator[str]:
    at, layer = middle(model)
    offset = -1.0 if model.folder.config["model_type"].startswith("gemma") else 1.0
    with changed(layer.input_layernorm, weight=layer.input_layernorm.weight + offset):
        yield f"layer {at}"


@mutation("embedding scale: none where one belongs, or one where none does")
def _embedding_scale(model: Any) -> Iterator[str]:
    factor = 1 / model.inner_scale if model.inner_scale != 1.0 else model.folder.config["hidden_size"] ** 0.5
    embed = model.embed
    with changed(model, embed=lambda ids: embed(ids) * factor):
        yield "embeddings"


@mutation("embedding scale rounded to bf16")
def _embedding_scale_rounded(model: Any) -> Iterator[str]:
    require(model.embedding_mend != 1.0, "its scale is the same in bf16, or it has none")
    embed, mend = model.embed, model.embedding_mend
    with changed(model, embed=lambda ids: embed(ids) / mend):
        yield "embeddings"


@mutation("another activation: exact GELU for its tanh form, GELU for SiLU")
def _activation(model: Any) -> Iterator[str]:
    import mlx.nn as nn

    at, layer = middle(model)
    require("gate_proj" in layer.mlp, "gate and up are one matrix")
    mlp, act = layer.mlp, nn.gelu if model.folder.config["model_type"].startswith("gemma") else nn.gelu_approx
    with calling(mlp, lambda _, x: mlp.down_proj(act(mlp.gate_proj(x)) * mlp.up_proj(x))):
        yield f"layer {at}"


@mutation("query and key exchanged")
def _query_key(model: Any) -> Iterator[str]:
    import mlx.core as mx

    at, layer = middle(model)
    require("q_proj" in layer.self_attn, FUSED)
    query, key = layer.self_attn.q_proj, layer.self_attn.k_proj
    own_query, own_key = (functools.partial(type(module).__call__, module) for module in (query, key))

    def queries(_: Any, x: Any) -> Any:
        keys = own_key(x)
        return mx.concatenate([keys, own_query(x)[..., keys.shape[-1] :]], axis=-1)

    with calling(query, queries), calling(key, lambda own, x: own_query(x)[..., : own(x).shape[-1]]):
        yield f"layer {at}"


@mutation("norms of query and key exchanged")
def _query_key_norms(model: Any) -> Iterator[str]:
    at, layer = middle(model)
    attention = layer.self_attn
    require("q_norm" in attention, "no norms of queries and keys")
    with changed(attention, q_norm=attention.k_norm, k_norm=attention.q_norm):
        yield f"layer {at}"


@mutation("heads in another order")
def _heads(model: Any) -> Iterator[str]:
    at, layer = middle(model)
    require("q_proj" in layer.self_attn, FUSED)
    with _rolled(layer.self_attn.q_proj, head_width(model)):
        yield f"layer {at}"


@mutation("key heads in another order")
def _key_heads(model: Any) -> Iterator[str]:
    at, layer = middle(model)
    require("q_proj" in layer.self_attn, FUSED)
    require(model.folder.config["num_key_value_heads"] > 1, "one key head only")
    with _rolled(layer.self_attn.k_proj, head_width(model)):
        yield f"layer {at}"


@contextmanager
def _rolled(linear: Any, by: int) -> Iterator[None]:
    import mlx.core as mx

    with calling(linear, lambda own, x: mx.roll(own(x), by, -1)):
        yield


@mutation("bias left out")
def _bias(model: Any) -> Iterator[str]:
    import mlx.core as mx

    at, layer = middle(model)
    require("q_proj" in layer.self_attn, FUSED)
    linear = layer.self_attn.q_proj
    linear = linear.base if "base" in linear else linear
    require("bias" in linear, "no biases")
    with changed(linear, bias=mx.zeros_like(linear.bias)):
        yield f"layer {at}"


@mutation("layers exchanged")
def _layers(model: Any) -> Iterator[str]:
    at, _ = middle(model)
    require(at > 0, "one layer only")
    inner = model.network.model
    layers = list(inner.layers)
    layers[at - 1], layers[at] = layers[at], layers[at - 1]
    with changed(inner, layers=layers):
        yield f"layer {at - 1}"


@mutation("final norm one per cent off")
def _final_norm(model: Any) -> Iterator[str]:
    norm = model.network.model.norm
    with changed(norm, weight=norm.weight * 1.01):
        yield "head"


@mutation("an adapter of the tied head merged into the embeddings")
def _tied_table(model: Any) -> Iterator[str]:
    import mlx.core as mx

    require(model.folder.config["tie_word_embeddings"], "the head has a table of its own")
    table = model.network.model.embed_tokens
    require("scales" not in table, "the embeddings are packed")
    vocabulary, width = table.weight.shape
    change = mx.outer(mx.cos(mx.arange(vocabulary)), mx.sin(mx.arange(width))) * (0.01 * mx.std(table.weight))
    with changed(table, weight=table.weight + change):
        yield "embeddings"
