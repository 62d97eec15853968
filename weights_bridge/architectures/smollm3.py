"""SmolLM3 (`SmolLM3ForCausalLM`): Llama in which every fourth layer has no rotary embedding (`no_rope_layers`).

Not exported: the exporter traces one layer per kind of attention, and these layers are of one kind and two makes.
"""

from weights_bridge.architectures.table import ALL_STAGES, Architecture, decoder

ARCHITECTURE = Architecture(
    "smollm3",
    "causal_lm",
    decoder(mlp_bias=True),
    tied=True,
    stages=tuple(stage for stage in ALL_STAGES if stage not in ("export", "swap")),
)
