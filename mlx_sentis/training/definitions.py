"""mlx-lm's model definitions, loaded from a Hugging Face directory in fp32, with our named mends.

Legend: `B` rows, `T` tokens, `H` hidden width, `V` vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlx_sentis.training.mlx_lm_models import models_module
from weights_bridge.errors import all_at_once
from weights_bridge.model_config import layer_kinds
from weights_bridge.model_folder import ModelFolder, require_stage

WITHOUT_EMBEDDINGS = ("phi3",)  # definitions that take ids only


class _Given(nn.Module):
    """An embedding whose argument is embedded already."""

    def __call__(self, embeddings: mx.array) -> mx.array:
        return embeddings


def _hidden_with_windows(inner: Any, embeddings: mx.array, cache: list[Any] | None, config: dict[str, Any]) -> mx.array:
    """Return the hidden states of Gemma 2 with its sliding layers, which mlx-lm's definition lets see everything.

    The mend "sliding layers". The definition's own layers and scale, with a mask for each kind.
    """
    own = cache or [None] * len(inner.layers)
    windows = {"full_attention": None, "sliding_attention": config["sliding_window"]}
    masks = {kind: _mask(own[0], embeddings.shape[1], size) for kind, size in windows.items()}
    hidden = embeddings * config["hidden_size"] ** 0.5
    for layer, kind, part in zip(inner.layers, layer_kinds(config), own, strict=True):
        hidden = layer(hidden, masks[kind], part)
    return inner.norm(hidden)


def _mask(cache: Any, tokens: int, window: int | None) -> mx.array | None:
    """Return the mask that a cache makes for so many new tokens; without one, the causal mask [tokens, tokens]."""
    if cache is not None:
        return cache.make_mask(tokens, return_array=True, window_size=window)
    return models_module("base").create_causal_mask(tokens, window_size=window)


def _hidden_of_given(inner: Any, embeddings: mx.array, cache: list[Any] | None) -> mx.array:
    """Return the hidden states of a definition without `input_embeddings`: its table lets them through."""
    table, inner.embed_tokens = inner.embed_tokens, _Given()
    try:
        return inner(embeddings, cache)
    finally:
        inner.embed_tokens = table


@dataclass
class CausalLM:
    """A decoder, taken apart where training and parity need it.

    Attributes:
        network: mlx-lm's `Model`.
        folder: where it came from.
    """

    network: Any
    folder: ModelFolder

    @property
    def layers(self) -> list[Any]:
        return self.network.model.layers

    @property
    def inner_scale(self) -> float:
        """What the definition multiplies embeddings by before its first layer: bf16(√H) for Gemma 3, √H for Gemma 2."""
        kind, root = self.folder.config["model_type"], math.sqrt(self.folder.config["hidden_size"])
        if kind != "gemma3_text":
            return root if kind == "gemma2" else 1.0
        return float(mx.array(root, mx.bfloat16).astype(mx.float32).item())  # pyright: ignore[reportArgumentType]

    @property
    def logit_cap(self) -> float | None:
        """The bound c of logits c · tanh(logits / c); None without one."""
        return getattr(self.network, "final_logit_softcapping", None)

    @property
    def embedding_mend(self) -> float:
        """What embeddings are multiplied by before the definition does: √H / bf16(√H) for Gemma 3, else 1."""
        if self.folder.config["model_type"] != "gemma3_text":
            return 1.0
        return math.sqrt(self.folder.config["hidden_size"]) / self.inner_scale

    def embed(self, ids: mx.array) -> mx.array:
        """Return the input embeddings of token ids `[B, T]` as `[B, T, H]`, as `hidden` wants them."""
        embeddings = self.network.model.embed_tokens(ids)
        if self.embedding_mend != 1.0:  # the mend "embedding scale"
            embeddings = embeddings * self.embedding_mend
        return embeddings

    def hidden(self, embeddings: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Return the final hidden states `[B, T, H]` (after the last norm) of embeddings `[B, T, H]`."""
        if self.inner_scale != 1.0:  # Gemma 3's definition scales its argument in place: give it one of its own
            embeddings = embeddings + 0.0
        if self.folder.config["model_type"] == "gemma2":
            return _hidden_with_windows(self.network.model, embeddings, cache, self.folder.config)
        if self.folder.architecture.mlx_lm_module in WITHOUT_EMBEDDINGS:
            return _hidden_of_given(self.network.model, embeddings, cache)
        return self.network.model(None, cache, input_embeddings=embeddings)

    def logits(self, hidden: mx.array) -> mx.array:
        """Return logits `[…, V]` of final hidden states `[…, H]`."""
        if "lm_head" in self.network:
            logits = self.network.lm_head(hidden)
        else:
            logits = self.network.model.embed_tokens.as_linear(hidden)
        return logits if self.logit_cap is None else mx.tanh(logits / self.logit_cap) * self.logit_cap


def load_causal_lm(folder: ModelFolder) -> CausalLM:
    """Load a model directory through mlx-lm's definition, weights widened to fp32.

    Weights that are quantised already stay packed, see `quantised_folder`.

    fp32 because half precision runs at 2–3 GFLOP/s on MLX's CPU backend, and because parity is measured there.

    Raises:
        StageError: tensors do not fit the architecture, all mismatches at once.
    """
    from mlx_sentis.training.quantised_folder import is_quantised, load_packed

    require_stage(folder, "train")
    definition = models_module(folder.architecture.mlx_lm_module)
    if is_quantised(folder):
        network = definition.Model(definition.ModelArgs.from_dict(folder.config))
        load_packed(network, folder)
        return _ready(network, folder)
    folder.check_tensors()
    network = definition.Model(definition.ModelArgs.from_dict(folder.config))
    names = folder.architecture.mlx_from_torch(folder.config)
    weights = {names[name]: mx.array(array) for name, array in folder.tensors() if name in names}
    if hasattr(network, "sanitize"):
        weights = network.sanitize(weights)
    wanted = {name for name, _ in _flat(network)}
    if faults := [f"{n}: in the definition, not in the table" for n in wanted - weights.keys()] + [
        f"{n}: in the table, not in the definition" for n in weights.keys() - wanted
    ]:
        hint = "this mlx-lm has another definition of the architecture than the one this was tested with (0.32)"
        raise all_at_once(f"{folder.config['model_type']}: tensors do not fit mlx-lm's definition:", faults, hint=hint)
    network.load_weights(list(weights.items()), strict=True)
    return _ready(network, folder)


def _ready(network: Any, folder: ModelFolder) -> CausalLM:
    network.eval()
    mx.eval(network.parameters())
    return CausalLM(network, folder)


def _flat(network: nn.Module) -> list[tuple[str, mx.array]]:
    from mlx.utils import tree_flatten

    return tree_flatten(network.parameters())  # pyright: ignore[reportReturnType]
