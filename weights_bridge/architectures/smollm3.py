"""SmolLM3 (`SmolLM3ForCausalLM`): Llama in which every fourth layer has no rotary embedding (`no_rope_layers`)."""

from weights_bridge.architectures.table import Architecture, decoder

ARCHITECTURE = Architecture("smollm3", "causal_lm", decoder(mlp_bias=True), tied=True)
