"""Gemma 2 (`Gemma2ForCausalLM`): norms of 1 + weight around attention and MLP, soft-capped scores and logits.

Every second layer slides in transformers, none in mlx-lm, so mlx-lm by itself answers as trained on prompts up to
`sliding_window` only.
"""

from weights_bridge.architectures.table import Architecture, Mend, decoder, same

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
    mends=(
        Mend(
            "sliding layers",
            "mlx-lm's definition gives every layer one causal mask. Sliding layers get a mask of their own; before and "
            "after on the toy, whose window is 32, and a row of 130 tokens.",
            before_db=17.9,
            after_db=136.6,
        ),
    ),
)
