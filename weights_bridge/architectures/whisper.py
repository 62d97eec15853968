"""Whisper (`WhisperForConditionalGeneration`): two convolutions, an encoder, a decoder with cross attention.

mlx-lm has no definition; MLX's names are those of MLX's own Whisper example (`blocks`, `attn`, `mlp1`, …). That example
computes the encoder's positions; here they are carried over, because checkpoints round them in their own way.

Legend: `V` vocabulary, `H` width, `M` mel bins, `W` taps (3), `S` and `T` positions of encoder and decoder, `E` and `C`
layers of encoder and decoder, `I` and `J` their intermediate widths.
"""

from weights_bridge.architectures.table import Architecture, Config, Tensor

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}


def sizes(config: Config) -> dict[str, int]:
    """Return the legend's letters."""
    return {
        "V": config["vocab_size"],
        "H": config["d_model"],
        "M": config["num_mel_bins"],
        "W": 3,
        "S": config["max_source_positions"],
        "T": config["max_target_positions"],
        "E": config["encoder_layers"],
        "C": config["decoder_layers"],
        "I": config["encoder_ffn_dim"],
        "J": config["decoder_ffn_dim"],
    }


def _both(torch: str, mlx: str, shape: str, count: str, layout: str = "same") -> tuple[Tensor, Tensor]:
    return (
        Tensor(f"{torch}.weight", f"{mlx}.weight", shape, layout, count=count),
        Tensor(f"{torch}.bias", f"{mlx}.bias", shape[0], count=count),
    )


def _attention(torch: str, mlx: str, count: str) -> tuple[Tensor, ...]:
    """Return the rows of one attention; the keys have no bias."""
    rows = [row for name, own in ATTENTION.items() for row in _both(f"{torch}.{name}", f"{mlx}.{own}", "HH", count)]
    return tuple(row for row in rows if not row.torch.endswith("k_proj.bias"))


def _layer(side: str, count: str, width: str) -> tuple[Tensor, ...]:
    torch, mlx = f"model.{side}.layers.{{i}}.", f"{side}.blocks.{{i}}."
    crossed = (
        *_attention(torch + "encoder_attn", mlx + "cross_attn", count),
        *_both(torch + "encoder_attn_layer_norm", mlx + "cross_attn_ln", "H", count),
    )
    return (
        *_attention(torch + "self_attn", mlx + "attn", count),
        *_both(torch + "self_attn_layer_norm", mlx + "attn_ln", "H", count),
        *(crossed if side == "decoder" else ()),
        *_both(torch + "fc1", mlx + "mlp1", width + "H", count),
        *_both(torch + "fc2", mlx + "mlp2", "H" + width, count),
        *_both(torch + "final_layer_norm", mlx + "mlp_ln", "H", count),
    )


ARCHITECTURE = Architecture(
    "whisper",
    "speech_seq2seq",
    (
        *_both("model.encoder.conv1", "encoder.conv1", "HMW", "E", "conv1d"),
        *_both("model.encoder.conv2", "encoder.conv2", "HHW", "E", "conv1d"),
        Tensor("model.encoder.embed_positions.weight", "encoder.positional_embedding", "SH"),
        *_layer("encoder", "E", "I"),
        *_both("model.encoder.layer_norm", "encoder.ln_post", "H", "E"),
        Tensor("model.decoder.embed_tokens.weight", "decoder.token_embedding.weight", "VH"),
        Tensor("model.decoder.embed_positions.weight", "decoder.positional_embedding", "TH"),
        *_layer("decoder", "C", "J"),
        *_both("model.decoder.layer_norm", "decoder.ln", "H", "C"),
    ),
    definition="",
    torch_class="WhisperForConditionalGeneration",
    stages=("bridge",),
    tied=True,
    needed=(
        *("vocab_size", "d_model", "num_mel_bins", "max_source_positions", "max_target_positions"),
        *("encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
    ),
    sizes=sizes,
)
