"""A model's `config.json`, settled: one way of saying what its readers look for in several places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weights_bridge import architectures
from weights_bridge.architectures.table import DECODER_SIZES
from weights_bridge.config_values import HINT, check_values
from weights_bridge.errors import StageError, all_at_once

QUANTISED = ("quantization", "quantization_config")
CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
GEMMA2 = {  # transformers' defaults; mlx-lm divides scores by √144 where the configuration does not say
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "sliding_window": 4096,
}


def normalised_config(config: Any, path: Path) -> dict[str, Any]:
    """Return a configuration that says in one way what its readers look for in several places.

    transformers 5 writes `rope_parameters` only; mlx-lm 0.32 reads a top-level `rope_theta`, `rope_scaling` (and
    `rope_local_base_freq`) only and falls back to a default without a word: SmolLM2's logits are then 29 % off.
    Where neither is given, transformers' default holds (10000; mlx-lm's for qwen2 is 1000000).
    Disagreeing places are an error, not a choice.

    Args:
        config: the parsed `config.json`.
        path: named in errors.

    Raises:
        StageError: a key that every architecture needs is missing or no number, or two places disagree.
    """
    file = f"{path}/config.json"
    _check(config, file)
    normal = dict(config)
    known = normal["model_type"] in architectures.names()
    architecture = architectures.get(normal["model_type"]) if known else None
    normal.setdefault("tie_word_embeddings", architecture is not None and architecture.tied)
    if architecture is not None and architecture.family != "causal_lm":
        return normal
    if normal.get("num_key_value_heads") is None:
        normal["num_key_value_heads"] = normal["num_attention_heads"]
    normal.setdefault("rms_norm_eps", 1e-6)
    if normal["model_type"] == "gemma2":
        normal |= {key: normal.get(key, value) for key, value in GEMMA2.items()}
    _settle_rope(normal, file)
    _settle_layers(normal, file)
    _refuse_unknown(normal, file)
    return normal


def _check(config: Any, file: str) -> None:
    if not isinstance(config, dict):
        raise StageError(f"{file}: not a JSON object", hint=HINT)
    model_type = config.get("model_type")
    known = isinstance(model_type, str) and model_type in architectures.names()
    check_values(config, architectures.get(str(model_type)).needed if known else DECODER_SIZES, file)


def rope_in_both_spellings(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a configuration of any architecture with its rotary bases also where transformers 4 looks for them.

    Args:
        config: the parsed `config.json`.
        path: named in errors.

    Raises:
        StageError: the two places disagree, or hold no numbers.
    """
    normal = dict(config)
    if isinstance(normal.get("rope_parameters"), dict):
        try:
            _settle_parameters(normal, f"{path}/config.json")
        except (TypeError, ValueError):
            raise StageError(f"{path}/config.json: rope_parameters hold what is no number", hint=HINT) from None
    return normal


def _settle_rope(normal: dict[str, Any], file: str) -> None:
    """Put the rotary bases and the scaling where mlx-lm looks for them."""
    _settle_parameters(normal, file)
    if normal["model_type"] != "gemma3_text":  # mlx-lm's defaults for Gemma 3 are transformers' own
        normal.setdefault("rope_theta", 10000.0)


def _settle_parameters(normal: dict[str, Any], file: str) -> None:
    parameters = normal.get("rope_parameters") or {}
    by_kind = {kind: value for kind, value in parameters.items() if isinstance(value, dict)}
    full = by_kind.get("full_attention", {}) if by_kind else parameters
    _settle(normal, "rope_theta", full.get("rope_theta"), file)
    _settle(normal, "rope_local_base_freq", by_kind.get("sliding_attention", {}).get("rope_theta"), file)
    _settle(normal, "partial_rotary_factor", full.get("partial_rotary_factor"), file)
    if full.get("rope_type", "default") != "default":
        _settle(normal, "rope_scaling", {key: full[key] for key in full if key != "rope_theta"}, file)


def _settle(normal: dict[str, Any], key: str, nested: Any, file: str) -> None:
    if nested is None:
        return
    stated = normal.get(key)
    if stated is not None and _comparable(stated) != _comparable(nested):
        raise StageError(
            f"{file}: {key} is {stated} at the top and {nested} in rope_parameters",
            hint="make the two equal: readers differ in which one they take",
        )
    normal[key] = nested if isinstance(nested, dict) else float(nested)


def _comparable(value: Any) -> Any:
    if not isinstance(value, dict):
        return float(value)
    return {"rope_type" if key == "type" else key: v for key, v in value.items() if key != "rope_theta"}


def _settle_layers(normal: dict[str, Any], file: str) -> None:
    """Give Gemma 3 the period that mlx-lm reads, when its list of layers has one."""
    kinds = normal.get("layer_types")
    if not kinds or normal["model_type"] != "gemma3_text":
        return
    period = kinds.index("full_attention") + 1 if "full_attention" in kinds else len(kinds) + 1
    periodic = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(len(kinds))]
    if kinds != periodic or normal.get("sliding_window_pattern", period) != period:
        stated = normal.get("sliding_window_pattern", "not given")
        raise StageError(
            f"{file}: layer_types {kinds} do not repeat with one period (sliding_window_pattern {stated})",
            hint="mlx-lm's definition knows only every n-th layer as full attention",
        )
    normal["sliding_window_pattern"] = period


def _refuse_unknown(normal: dict[str, Any], file: str) -> None:
    """Refuse what transformers' class of an architecture does and mlx-lm's leaves out in silence."""
    faults, model_type = [], normal["model_type"]
    if model_type in ("mistral", "phi3") and normal.get("sliding_window") is not None:
        faults.append(
            f"sliding_window {normal['sliding_window']}: mlx-lm's definition attends to everything; set it to "
            "null and keep rows and prompts shorter than it"
        )
    if model_type == "phi3" and normal.get("rope_scaling"):
        faults.append("rope_scaling: not supported for phi3")
    if model_type == "phi3" and normal.get("rope_traditional"):
        faults.append("rope_traditional: queries and keys lie inside one matrix, whose rows are not dealt out")
    if model_type == "phi3" and normal.get("attention_bias"):
        faults.append("attention_bias: mlx-lm's definition has none")
    if model_type == "gemma2":
        faults += [f"{key}: found {normal[key]!r}, mlx-lm wants a number" for key in GEMMA2 if not normal[key]]
    else:
        faults += [f"{key}: mlx-lm's definition has no soft-capping" for key in CAPS if normal.get(key)]
    if faults:
        raise all_at_once(f"{file}: {model_type} as mlx-lm defines it differs:", faults, hint="see the keys named")


def layer_kinds(config: dict[str, Any]) -> list[str]:
    """Return `full_attention` or `sliding_attention` for each layer."""
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        return list(config["layer_types"])
    if config["model_type"] == "gemma2":
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    if config["model_type"] == "gemma3_text":
        period = config.get("sliding_window_pattern", 6)
        return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    return ["full_attention"] * layers


def rotary_layers(config: dict[str, Any]) -> list[bool]:
    """Return for each layer whether its queries and keys are rotated; SmolLM3 leaves every fourth one out."""
    layers = config["num_hidden_layers"]
    if config["model_type"] != "smollm3":
        return [True] * layers
    stated = config.get("no_rope_layers")  # 1 where there is a rotary embedding, whatever the name says
    if stated is None:
        interval = config.get("no_rope_layer_interval", 4)
        return [(i + 1) % interval != 0 for i in range(layers)]
    return [bool(one) for one in stated]
