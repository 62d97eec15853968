"""Phi-3 (`Phi3ForCausalLM`): q, k and v in one matrix, gate and up in another, on both sides.

mlx-lm's definition knows no sliding window: directories with one are refused.
"""

from weights_bridge.architectures.table import Architecture, is_untied, same

LAYER = "model.layers.{i}."

ARCHITECTURE = Architecture(
    "phi3",
    "causal_lm",
    (
        same("model.embed_tokens.weight", "VH"),
        same(LAYER + "input_layernorm.weight", "H"),
        same(LAYER + "self_attn.qkv_proj.weight", "FH"),
        same(LAYER + "self_attn.o_proj.weight", "HQ"),
        same(LAYER + "post_attention_layernorm.weight", "H"),
        same(LAYER + "mlp.gate_up_proj.weight", "GH"),
        same(LAYER + "mlp.down_proj.weight", "HI"),
        same("model.norm.weight", "H"),
        same("lm_head.weight", "VH", is_untied),
    ),
)
