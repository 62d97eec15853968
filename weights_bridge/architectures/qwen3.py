"""Qwen3 dense (`Qwen3ForCausalLM`): RMS norm on each head's queries and keys before the rotary embedding."""

from weights_bridge.architectures.table import Architecture, Tensor, decoder

Q_NORM = "model.layers.{i}.self_attn.q_norm.weight"
K_NORM = "model.layers.{i}.self_attn.k_norm.weight"

ARCHITECTURE = Architecture(
    "qwen3",
    "causal_lm",
    decoder(Tensor(Q_NORM, Q_NORM, "D"), Tensor(K_NORM, K_NORM, "D"), qkv_bias=False),
)
