"""BERT as an encoder (`BertModel`): also MiniLM and other sentence encoders.

mlx-lm has no definition; MLX's names are those of MLX's own BERT example (`key_proj`, `ln1`, `linear1`, …).

Legend: `V` vocabulary, `H` hidden width, `I` intermediate width, `L` layers, `P` positions, `T` token types.
"""

from weights_bridge.architectures.table import Architecture, Config, Drop, Tensor

TORCH, MLX = "encoder.layer.{i}.", "encoder.layers.{i}."
NAMES = {  # torch, MLX: a Linear or a norm with its sides; weight and bias each
    "attention.self.query": ("attention.query_proj", "HH"),
    "attention.self.key": ("attention.key_proj", "HH"),
    "attention.self.value": ("attention.value_proj", "HH"),
    "attention.output.dense": ("attention.out_proj", "HH"),
    "attention.output.LayerNorm": ("ln1", "H"),
    "intermediate.dense": ("linear1", "IH"),
    "output.dense": ("linear2", "HI"),
    "output.LayerNorm": ("ln2", "H"),
}


def sizes(config: Config) -> dict[str, int]:
    """Return the legend's letters."""
    return {
        "V": config["vocab_size"],
        "H": config["hidden_size"],
        "I": config["intermediate_size"],
        "L": config["num_hidden_layers"],
        "P": config["max_position_embeddings"],
        "T": config["type_vocab_size"],
    }


def _both(torch: str, mlx: str, shape: str) -> tuple[Tensor, Tensor]:
    return Tensor(f"{torch}.weight", f"{mlx}.weight", shape), Tensor(f"{torch}.bias", f"{mlx}.bias", shape[0])


ARCHITECTURE = Architecture(
    "bert",
    "text_encoder",
    (
        *(
            Tensor(f"embeddings.{kind}_embeddings.weight", f"embeddings.{kind}_embeddings.weight", shape)
            for kind, shape in (("word", "VH"), ("position", "PH"), ("token_type", "TH"))
        ),
        *_both("embeddings.LayerNorm", "embeddings.norm", "H"),
        *(row for torch, (mlx, shape) in NAMES.items() for row in _both(TORCH + torch, MLX + mlx, shape)),
        *_both("pooler.dense", "pooler", "HH"),
    ),
    definition="",
    torch_class="AutoModel",
    stages=("bridge",),
    drops=(Drop(r"embeddings\.position_ids", "a buffer of 0, 1, 2, … that older checkpoints store"),),
    needed=(
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("max_position_embeddings", "type_vocab_size"),
    ),
    sizes=sizes,
)
