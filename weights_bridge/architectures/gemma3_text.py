"""Gemma 3, text only (`Gemma3ForCausalLM`): sliding and full layers, two rotary bases, norms of 1 + weight."""

from weights_bridge.architectures.table import Architecture, Mend, Tensor, decoder

LAYER = "model.layers.{i}."
EXTRA = {
    LAYER + "self_attn.q_norm.weight": "D",
    LAYER + "self_attn.k_norm.weight": "D",
    LAYER + "pre_feedforward_layernorm.weight": "H",
    LAYER + "post_feedforward_layernorm.weight": "H",
}

ARCHITECTURE = Architecture(
    "gemma3_text",
    "causal_lm",
    decoder(*(Tensor(name, name, shape) for name, shape in EXTRA.items()), qkv_bias=False),
    sliding=True,
    rotary_by_kind=True,
    tied=True,
    mends=(
        Mend(
            "embedding scale",
            "mlx-lm multiplies embeddings by bf16(√H), torch by √H in the weights' type; for H = 640 that is 25.25 "
            "against 25.298 in fp32. Embeddings are fed already multiplied by √H / bf16(√H).",
            before_db=74.0,
            after_db=129.0,
        ),
    ),
)
