"""Whether the values of a `config.json` make sense, before anything computes with them; faults are named by key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weights_bridge.errors import StageError, all_at_once

LAYERS_AT_MOST = 10_000  # tables are expanded layer by layer; a thousandth of it is more than any published model has
HINT = "give a whole model directory"
LAYER_KINDS = ("full_attention", "sliding_attention")
Check = tuple[str, Callable[[Any], bool]]


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number above 0 that fits 63 bits."""
    return type(value) is int and 0 < value < 1 << 63


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number; JSON's true and false are none."""
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


WHOLE: Check = ("a whole number above 0", is_whole)
ABOVE_0: Check = ("a number above 0", lambda value: is_number(value) and value > 0)
FROM_0: Check = ("a number from 0", lambda value: is_number(value) and value >= 0)
SHARE: Check = ("a number above 0, at most 1", lambda value: is_number(value) and 0 < value <= 1)
YES_OR_NO: Check = ("true or false", lambda value: isinstance(value, bool))
OBJECT: Check = ("an object", lambda value: isinstance(value, dict))
OPTIONAL: dict[str, Check] = {  # what readers of either side take from a configuration; null is as good as absent
    **dict.fromkeys(("num_key_value_heads", "head_dim", "sliding_window", "sliding_window_pattern"), WHOLE),
    **dict.fromkeys(("no_rope_layer_interval", "max_position_embeddings", "query_pre_attn_scalar"), ABOVE_0),
    **dict.fromkeys(("rope_theta", "rope_local_base_freq", "rms_norm_eps", "layer_norm_eps"), ABOVE_0),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), FROM_0),
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "mlp_bias", "rope_traditional"), YES_OR_NO),
    **dict.fromkeys(("rope_parameters", "rope_scaling", "quantization", "quantization_config"), OBJECT),
    **dict.fromkeys(("latent_channels", "condition_size", "time_features", "memory_tokens"), WHOLE),
    **dict.fromkeys(("use_sliding_window", "differential"), YES_OR_NO),
    "partial_rotary_factor": SHARE,
    "layer_types": (
        f"a list of {' and '.join(LAYER_KINDS)}",
        lambda value: isinstance(value, list) and all(kind in LAYER_KINDS for kind in value),
    ),
    "no_rope_layers": (
        "a list of 0 and 1",
        lambda value: isinstance(value, list) and all(one in (0, 1) for one in value),
    ),
}
ROPE: dict[str, Check] = {
    **dict.fromkeys(("rope_theta", "factor"), ABOVE_0),
    "partial_rotary_factor": SHARE,
    **dict.fromkeys(("rope_type", "type"), ("a text", lambda value: isinstance(value, str))),
}
PER_LAYER = ("layer_types", "no_rope_layers")


def check_values(config: Mapping[str, Any], needed: Iterable[str], file: str) -> None:
    """Require values that the keys of a configuration can have.

    Args:
        config: the parsed `config.json`.
        needed: keys that must be whole numbers.
        file: named in errors.

    Raises:
        StageError: keys are missing, or values are of another type or impossible; all at once.
    """
    names = list(needed)
    if missing := [key for key in ("model_type", *names) if key not in config]:
        raise all_at_once(f"{file}: keys are missing:", missing, hint=HINT)
    if not isinstance(config["model_type"], str):
        raise StageError(f"{file}: model_type: found {_shown(config['model_type'])}, wanted a text", hint=HINT)
    checks = OPTIONAL | dict.fromkeys(names, WHOLE)
    faults = list(_faults(config, checks, "", names))
    parameters = config.get("rope_parameters")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if isinstance(value, dict):
            faults += _faults(value, ROPE, f"rope_parameters.{name}.", ())
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(name), dict):
            faults += _faults(config[name], ROPE, f"{name}.", ())
    faults = faults or _disagreements(config, names)
    if faults:
        raise all_at_once(f"{file}: values make no sense:", faults, hint=HINT)


def _faults(
    config: Mapping[str, Any], checks: Mapping[str, Check], prefix: str, needed: Iterable[str]
) -> Iterable[str]:
    for key, (wanted, fits) in checks.items():
        value = config.get(key)
        if (key in needed or value is not None) and not fits(value):
            yield f"{prefix}{key}: found {_shown(value)}, wanted {wanted}"


def _disagreements(config: Mapping[str, Any], needed: Iterable[str]) -> list[str]:
    """Return what values that make sense one by one say against each other."""
    faults = [
        f"{key}: found {config[key]}, at most {LAYERS_AT_MOST} are read"
        for key in needed
        if key.endswith("layers") and config[key] > LAYERS_AT_MOST
    ]
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    faults += [
        f"{key}: has {len(config[key])} entries for {layers} layers"
        for key in PER_LAYER
        if config.get(key) is not None and layers is not None and len(config[key]) != layers
    ]
    groups = config.get("num_key_value_heads")
    if groups is not None and heads is not None and heads % groups:
        faults.append(f"num_key_value_heads: {heads} heads cannot share {groups}")
    width = config.get("hidden_size")
    if heads is not None and width is not None and config.get("head_dim") is None and width % heads:
        faults.append(f"num_attention_heads: {heads} do not divide hidden_size {width}")
    return faults


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
