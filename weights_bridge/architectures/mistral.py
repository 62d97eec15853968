"""Mistral (`MistralForCausalLM`): Llama without biases; mlx-lm runs it through its Llama definition.

A `sliding_window` makes every layer slide in transformers and none in mlx-lm: such directories are refused.
"""

from weights_bridge.architectures.table import ROTARY, Architecture, decoder

ARCHITECTURE = Architecture("mistral", "causal_lm", decoder(qkv_bias=False), definition="llama", drops=(ROTARY,))
