"""The pieces of a decoder that are traced: prelude, one layer per make, final norm. Imports torch at the top.

The classes are transformers' own. Ours are the cache, a plain concatenation, because `DynamicCache(config=…)` truncates
sliding layers and carries Python state through the trace, and attention, which is the eager one without its copies of
grouped keys and values.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from converters.families import causal_lm
from converters.families.causal_lm import Slots
from converters.families.grouped_attention import NAME as GROUPED
from weights_bridge.errors import StageError
from weights_bridge.model_folder import ModelFolder, layer_kinds

QUERY, PAST = 5, 3  # sizes while tracing: different from each other and from 0 and 1, which torch.export specialises
APART = 10  # between pieces: traced side by side, equal sizes would become one symbol, measured on one piece's input
TRACED_VOCABULARY = 16  # no node depends on the vocabulary; the real table would cost its size in memory


@dataclass(frozen=True)
class Piece:
    """A module to trace.

    Attributes:
        name: `prelude`, `layer:<make>` or `norm`.
        module: takes and returns plain tensors.
        inputs: name to example tensor, in order.
        dynamic: input name to its dynamic axes.
        outputs: names, in order.
    """

    name: str
    module: nn.Module
    inputs: dict[str, torch.Tensor]
    dynamic: dict[str, tuple[int, ...]]
    outputs: list[str]


class JoinedCache:
    """Past keys and values of one layer; `update` joins the new ones to them.

    Args:
        key: [B, K, past, D].
        value: [B, K, past, D].
    """

    def __init__(self, key: torch.Tensor, value: torch.Tensor) -> None:
        self.key, self.value = key, value

    def update(self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.key = torch.cat([self.key, key], dim=2)
        self.value = torch.cat([self.value, value], dim=2)
        return self.key, self.value


class SlotCache(JoinedCache):
    """Keys and values of one layer in slots; `update` writes the new ones where the slots say.

    Args:
        key: [B, K, length, D].
        value: [B, K, length, D].
        slots: [B, 1, length, query], 1 where a new token goes.
    """

    def __init__(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        super().__init__(key, value)
        self.slots, self.kept = slots, 1 - slots.sum(-1, keepdim=True)

    def update(self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.key = self.key * self.kept + self._placed(key)
        self.value = self.value * self.kept + self._placed(value)
        return self.key, self.value

    def _placed(self, new: torch.Tensor) -> torch.Tensor:
        return self.slots * new if self.slots.shape[-1] == 1 else torch.matmul(self.slots, new)


class Prelude(nn.Module):
    """Token and rotary embeddings; cos and sin once per kind of attention."""

    def __init__(self, model: Any, kinds: list[str], by_kind: bool) -> None:
        super().__init__()
        self.model = nn.ModuleDict({name: getattr(model, name) for name in ("embed_tokens", "rotary_emb")})
        self.kinds, self.by_kind = kinds, by_kind

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.model["embed_tokens"](input_ids)
        rotary = []
        for kind in self.kinds:
            which = {"layer_type": kind} if self.by_kind else {}
            rotary += self.model["rotary_emb"](hidden, position_ids, **which)
        return hidden, *rotary


class Layer(nn.Module):
    """One decoder layer with its cache as plain tensors."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, hidden: Any, cos: Any, sin: Any, mask: Any, past_key: Any, past_value: Any, slots: Any = None
    ) -> tuple[Any, ...]:
        cache = JoinedCache(past_key, past_value) if slots is None else SlotCache(past_key, past_value, slots)
        out = self.layer(hidden, position_embeddings=(cos, sin), attention_mask=mask, cache=cache)
        return out[0] if isinstance(out, tuple) else out, cache.key, cache.value


class FinalNorm(nn.Module):
    """The norm before the head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"norm": model.norm})

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model["norm"](hidden)


def plain_config(folder: ModelFolder) -> Any:
    """Return transformers' configuration of a directory; how MLX packed its files is no matter of the class."""
    config = copy.deepcopy(AutoConfig.from_pretrained(folder.path, local_files_only=True))
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    return config


def reduced_config(folder: ModelFolder) -> Any:
    """Return transformers' configuration with one layer per make and a tiny vocabulary.

    Raises:
        StageError: transformers and the directory disagree about the layers.
    """
    config = plain_config(folder)
    kinds = layer_kinds(folder.config)
    theirs = list(getattr(config, "layer_types", None) or kinds)
    if theirs != kinds:
        found = f"{folder.path}/config.json: transformers reads the layers as {theirs[:8]}…, we as {kinds[:8]}…"
        raise StageError(found, hint="write layer_types into config.json")
    distinct = distinct_makes(folder)
    if getattr(config, "layer_types", None):
        config.layer_types = [causal_lm.kind_of_make(make) for make in distinct]
    if getattr(config, "no_rope_layers", None):
        config.no_rope_layers = [int(make == causal_lm.kind_of_make(make)) for make in distinct]
    config.num_hidden_layers = len(distinct)
    config.vocab_size, config.pad_token_id = TRACED_VOCABULARY, None
    return config


def distinct_makes(folder: ModelFolder) -> list[str]:
    """Return the distinct makes of layers, those of one kind of attention together."""
    causal_lm.kinds_of(folder)  # refuses a kind without a mask
    return sorted(set(causal_lm.makes_of(folder)))


def pieces(folder: ModelFolder, slots: Slots | None = None) -> list[Piece]:
    """Return the pieces of a model, built from its configuration; no weight file is opened."""
    config = reduced_config(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = AutoModelForCausalLM.from_config(config, attn_implementation=GROUPED, dtype=torch.float32)
    whole.eval().requires_grad_(False)
    kinds, known = causal_lm.kinds_of(folder), causal_lm.constants(folder)
    turned = int(known["head_dim"] * (folder.config.get("partial_rotary_factor") or 1))
    by_kind = folder.architecture.rotary_by_kind
    rotary = [f"{part}:{kind}" for kind in kinds for part in ("cos", "sin")]
    query, past = (QUERY, PAST) if slots is None else (slots.query, slots.length)
    apart = APART if slots is None else 0  # sizes that are numbers do not become symbols
    tokens = {
        "input_ids": torch.zeros(1, query, dtype=torch.int64),
        "position_ids": torch.arange(past, past + query)[None],
    }
    prelude = Prelude(whole.model, kinds, by_kind)
    found = [Piece("prelude", prelude, tokens, dict.fromkeys(tokens, (1,)), ["hidden", *rotary])]
    axes = {"hidden": (1,), "cos": (1,), "sin": (1,), "mask": (2, 3), "past_key": (2,), "past_value": (2,)}
    for number, (make, layer) in enumerate(zip(distinct_makes(folder), whole.model.layers, strict=True), 1):
        example = layer_example(known, turned, query + apart * number, past + apart * number)
        if slots is not None:
            example |= {"mask": torch.zeros(1, 1, query, past), "slots": torch.eye(past, query)[None, None]}
        found.append(Piece(f"layer:{make}", Layer(layer), example, axes, ["out", "present_key", "present_value"]))
    hidden = torch.randn(1, query + apart * len(found), known["hidden"])
    found.append(Piece("norm", FinalNorm(whole.model), {"hidden": hidden}, {"hidden": (1,)}, ["out"]))
    return found if slots is None else [replace(piece, dynamic={}) for piece in found]


def layer_example(known: dict[str, Any], turned: int, query: int, past: int) -> dict[str, torch.Tensor]:
    """Return inputs of one layer.

    Args:
        known: the architecture's constants.
        turned: numbers of a head that rotate.
        query: new tokens.
        past: cached tokens.
    """
    cache = torch.randn(1, known["kv_heads"], past, known["head_dim"])
    return {
        "hidden": torch.randn(1, query, known["hidden"]),
        "cos": torch.randn(1, query, turned),
        "sin": torch.randn(1, query, turned),
        "mask": torch.zeros(1, 1, query, past + query),
        "past_key": cache,
        "past_value": cache.clone(),
    }
