"""Qwen2 and Qwen2.5 (`Qwen2ForCausalLM`): q, k and v have a bias, o has none."""

from weights_bridge.architectures.table import Architecture, decoder

ARCHITECTURE = Architecture("qwen2", "causal_lm", decoder(qkv_bias=True))
