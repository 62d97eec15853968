"""Decoder-only language models: flat K/V caches, explicit positions, one additive mask per kind of attention.

Legend: `B` rows (1 unless `batch` is dynamic), `query` new tokens, `past` cached tokens, `total` = past + query,
`V` vocabulary, `K` key/value heads, `D` head width.

    input_ids, position_ids                [B, query]            int64
    attention_mask, sliding_attention_mask [B, 1, query, total]  float32, 0 where a token may look, MASKED where not
    past_key_values.{i}.key|value          [B, K, past, D]       float32, past may be 0
    logits                                 [B, query, V]         float32
    next_token (where asked for)           [B, 1]                int64, argmax of the last row, the first at a tie
    present.{i}.key|value                  [B, K, total, D]      float32

Every cache is a full one, also where a layer slides: the mask input alone decides what a layer sees.

With slots (`Slots`) every size is a number: `query` tokens, caches and masks of `length` slots, and one more input,

    cache_slots                            [1, 1, length, query] float32, 1 where a new token goes, 0 elsewhere

so that present = past · (1 − Σ slots) + slots · new, of the same shape as past. Which slot a token gets is the caller's
choice: keys are turned before they are kept, and the mask says which slots are seen.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weights_bridge.architectures.table import dimensions
from weights_bridge.errors import StageError
from weights_bridge.model_config import rotary_layers
from weights_bridge.model_folder import ModelFolder, layer_kinds
from weights_bridge.settings import ExportSettings

SCHEMA = "mlx-sentis/contract/1"
MASKED = -1e9  # finite: a row of -inf alone gives 0/0 in Softmax, in Sentis as in ONNX Runtime
MASK_OF_KIND = {"full_attention": "attention_mask", "sliding_attention": "sliding_attention_mask"}
TABLE = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NEXT_TOKEN = "next_token"
SLOTS = "cache_slots"


@dataclass(frozen=True)
class Slots:
    """A cache of fixed length whose tokens are written at slots.

    Attributes:
        length: how many tokens it holds.
        query: how many tokens a call takes.
    """

    length: int
    query: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.query <= self.length:
            raise StageError(f"slots: {self.query} new tokens into {self.length} slots", hint="more slots than tokens")


def constants(folder: ModelFolder) -> dict[str, Any]:
    """Return what a caller of the graph needs to know about the architecture."""
    config, sizes = folder.config, dimensions(folder.config)
    kinds = layer_kinds(config)
    found = {
        "layers": sizes["L"],
        "heads": config["num_attention_heads"],
        "kv_heads": sizes["K"] // sizes["D"],
        "head_dim": sizes["D"],
        "hidden": sizes["H"],
        "intermediate": sizes["I"],
        "vocab": sizes["V"],
        "sliding_window": config.get("sliding_window") if "sliding_attention" in kinds else None,
        "layer_kinds": kinds,
        "rope_theta": config.get("rope_theta"),
        "rope_local_base_freq": config.get("rope_local_base_freq"),
        "norm_eps": config.get("rms_norm_eps"),
        "activation": config.get("hidden_activation") or config.get("hidden_act"),
        "query_scalar": config.get("query_pre_attn_scalar"),
        "tied": bool(config["tie_word_embeddings"]),
    }
    if unturned := [i for i, turned in enumerate(rotary_layers(config)) if not turned]:
        found["layers_without_rotary"] = unturned
    for word, key in (("score_cap", "attn_logit_softcapping"), ("logit_cap", "final_logit_softcapping")):
        if config.get(key):
            found[word] = config[key]
    return found


def makes_of(folder: ModelFolder) -> list[str]:
    """Return for each layer what tells its graph from others': its kind of attention, and whether it rotates."""
    pairs = zip(layer_kinds(folder.config), rotary_layers(folder.config), strict=True)
    return [kind if turned else f"{kind}, no rotary" for kind, turned in pairs]


def kind_of_make(make: str) -> str:
    """Return a make's kind of attention."""
    return make.partition(",")[0]


def kinds_of(folder: ModelFolder) -> list[str]:
    """Return the distinct kinds of layers in the order of `MASK_OF_KIND`.

    Raises:
        StageError: a layer is of a kind this family has no mask for.
    """
    found = layer_kinds(folder.config)
    if unknown := sorted(set(found) - set(MASK_OF_KIND)):
        hint = f"the causal_lm family knows {', '.join(MASK_OF_KIND)}"
        raise StageError(f"{folder.path}/config.json: layer_types holds {', '.join(unknown)}", hint=hint)
    return [kind for kind in MASK_OF_KIND if kind in found]


def io(
    folder: ModelFolder, batch: str = "1", *, argmax: bool = False, slots: Slots | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the graph's inputs and outputs: `{"name", "dtype", "shape"}`, dynamic sizes as names."""
    known = constants(folder)
    fixed = {} if slots is None else {"query": slots.query, "past": slots.length, "total": slots.length}
    rows: int | str = 1 if batch == "1" else "batch"

    def entry(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
        return {"name": name, "dtype": dtype, "shape": [rows, *(fixed.get(str(size), size) for size in shape)]}

    def caches(prefix: str, length: str) -> list[dict[str, Any]]:
        names = [f"{prefix}.{i}.{part}" for i in range(known["layers"]) for part in ("key", "value")]
        return [entry(name, "float32", known["kv_heads"], length, known["head_dim"]) for name in names]

    masks = [entry(MASK_OF_KIND[kind], "float32", 1, "query", "total") for kind in kinds_of(folder)]
    masks += [entry(SLOTS, "float32", 1, "past", "query")] if slots is not None else []
    inputs = [entry("input_ids", "int64", "query"), entry("position_ids", "int64", "query"), *masks]
    outputs = [entry("logits", "float32", "query", known["vocab"]), *caches("present", "total")]
    outputs += [entry(NEXT_TOKEN, "int64", 1)] if argmax else []
    return inputs + caches("past_key_values", "past"), outputs


def contract(folder: ModelFolder, settings: ExportSettings, slots: Slots | None = None) -> dict[str, Any]:
    """Return contract.json without `initialisers` and `topology_sha256`, which the written graph decides."""
    inputs, outputs = io(folder, settings.batch, argmax=settings.argmax, slots=slots)
    return {
        "schema": SCHEMA,
        "family": "causal_lm",
        "architecture": folder.architecture.model_type,
        "opset": settings.opset,
        "sentis": settings.sentis,
        "dtype": settings.dtype,
        "batch": settings.batch,
        "constants": constants(folder),
        "inputs": inputs,
        "outputs": outputs,
        "masks": {MASK_OF_KIND[kind]: kind for kind in kinds_of(folder)},
        "masked": MASKED,
        "cache": {"kind": "joined"} if slots is None else {"kind": "slots"} | asdict(slots),
    }


def predicted_bytes(folder: ModelFolder, dtype: str) -> int:
    """Return how large the weights in the written file will be, from the configuration alone."""
    total = 0
    for shape in folder.architecture.torch_shapes(folder.config).values():
        elements = 1
        for size in shape:
            elements *= size
        total += elements * (2 if dtype == "fp16" and len(shape) > 1 else 4)
    return total


def torch_source(onnx_name: str) -> str:
    """Return the torch tensor an initialiser comes from; they bear the same names."""
    return onnx_name
