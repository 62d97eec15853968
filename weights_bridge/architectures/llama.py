"""Llama (`LlamaForCausalLM`): also SmolLM2, TinyLlama and Llama 3.x checkpoints."""

from weights_bridge.architectures.table import ROTARY, Architecture, decoder

ARCHITECTURE = Architecture("llama", "causal_lm", decoder(mlp_bias=True), drops=(ROTARY,))
