"""Gemma 2 (`Gemma2ForCausalLM`): norms of 1 + weight around attention and MLP, soft-capped scores and logits.

Every second layer slides in transformers, none in mlx-lm, so the two agree on rows up to `sliding_window` only.
"""

from weights_bridge.architectures.table import Architecture, decoder, same

LAYER = "model.layers.{i}."

ARCHITECTURE = Architecture(
    "gemma2",
    "causal_lm",
    decoder(
        same(LAYER + "pre_feedforward_layernorm.weight", "H"),
        same(LAYER + "post_feedforward_layernorm.weight", "H"),
        qkv_bias=False,
    ),
    sliding=True,
    tied=True,
    stages=("recipe", "prepare", "bridge"),  # the trainer's head and the exporter know no soft-capping
)
