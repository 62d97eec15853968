"""What an architecture table says.

Legend: `V` vocabulary, `H` hidden width, `Q` query heads × head width, `K` key/value heads × head width,
`D` head width, `I` intermediate width, `L` layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """One row of a table.

    Attributes:
        torch: the name in a Hugging Face checkpoint, `{i}` for the layer.
        mlx: the name in mlx-lm's definition, `{i}` for the layer.
        shape: letters of the legend, in torch's order.
        layout: how torch's axes become MLX's: `same` (Linear, Embedding, norms: both are [out, in]).
        when: tells from the configuration whether the tensor exists.
    """

    torch: str
    mlx: str
    shape: str
    layout: str = "same"
    when: Callable[[dict[str, Any]], bool] = lambda config: True


@dataclass(frozen=True)
class Mend:
    """A named correction of a definition that deviates from the reference.

    Attributes:
        name: what it corrects.
        why: the cause, with its source.
        before_db: PSNR of the logits without it, in dB.
        after_db: PSNR of the logits with it, in dB.
    """

    name: str
    why: str
    before_db: float
    after_db: float


@dataclass(frozen=True)
class Architecture:
    """One architecture: its tensors and its constants.

    Attributes:
        model_type: `config.json`'s `model_type`.
        family: the I/O contract it is exported under.
        tensors: the table.
        sliding: whether some layers attend to a window only (then the graph has a second mask input).
        mends: named corrections of the MLX definition.
    """

    model_type: str
    family: str
    tensors: tuple[Tensor, ...]
    sliding: bool = False
    mends: tuple[Mend, ...] = ()

    def expand(self, config: dict[str, Any]) -> Iterator[tuple[Tensor, str, str, tuple[int, ...]]]:
        """Yield (row, torch name, MLX name, shape) of every tensor that a configuration has."""
        sizes = dimensions(config)
        for row in self.tensors:
            if not row.when(config):
                continue
            shape = tuple(sizes[letter] for letter in row.shape)
            for i in range(sizes["L"]) if "{i}" in row.torch else (0,):
                yield row, row.torch.format(i=i), row.mlx.format(i=i), shape

    def torch_shapes(self, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return torch name to shape of every tensor that a configuration has."""
        return {torch: shape for _, torch, _, shape in self.expand(config)}

    def mlx_from_torch(self, config: dict[str, Any]) -> dict[str, str]:
        """Return torch name to MLX name; the inverse is derived, never typed."""
        return {torch: mlx for _, torch, mlx, _ in self.expand(config)}

    def torch_from_mlx(self, config: dict[str, Any]) -> dict[str, str]:
        """Return MLX name to torch name."""
        return {mlx: torch for torch, mlx in self.mlx_from_torch(config).items()}

    def linear_modules(self, config: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """Return torch module name to (out, in) of every Linear inside the layers: what `all-linear` trains."""
        shapes = self.torch_shapes(config)
        return {
            name.removesuffix(".weight"): (shape[0], shape[1])
            for name, shape in shapes.items()
            if len(shape) == 2 and re.search(r"\.layers\.\d+\.", name)
        }


def dimensions(config: dict[str, Any]) -> dict[str, int]:
    """Return the legend's letters for a normalised configuration."""
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_width = config.get("head_dim") or width // heads
    return {
        "V": config["vocab_size"],
        "H": width,
        "Q": heads * head_width,
        "K": (config.get("num_key_value_heads") or heads) * head_width,
        "D": head_width,
        "I": config["intermediate_size"],
        "L": config["num_hidden_layers"],
    }


def is_untied(config: dict[str, Any]) -> bool:
    """Tell whether the head has a table of its own."""
    return not config["tie_word_embeddings"]


def decoder(*extra: Tensor, qkv_bias: bool | None = None, mlp_bias: bool = False) -> tuple[Tensor, ...]:
    """Return the rows that Llama-like decoders share; mlx-lm keeps Hugging Face's names.

    Args:
        extra: rows this architecture adds.
        qkv_bias: True when q, k and v always have a bias, False never, None as `attention_bias` says (then o too).
        mlp_bias: whether `mlp_bias` in the configuration is honoured.
    """

    def same(name: str, shape: str, when: Callable[[dict[str, Any]], bool] = lambda config: True) -> Tensor:
        return Tensor(name, name, shape, when=when)

    def attention_bias(config: dict[str, Any]) -> bool:
        return bool(config.get("attention_bias")) if qkv_bias is None else qkv_bias

    def o_bias(config: dict[str, Any]) -> bool:
        return qkv_bias is None and attention_bias(config)

    def has_mlp_bias(config: dict[str, Any]) -> bool:
        return mlp_bias and bool(config.get("mlp_bias"))

    layer = "model.layers.{i}."
    return (
        same("model.embed_tokens.weight", "VH"),
        same(layer + "input_layernorm.weight", "H"),
        same(layer + "self_attn.q_proj.weight", "QH"),
        same(layer + "self_attn.q_proj.bias", "Q", attention_bias),
        same(layer + "self_attn.k_proj.weight", "KH"),
        same(layer + "self_attn.k_proj.bias", "K", attention_bias),
        same(layer + "self_attn.v_proj.weight", "KH"),
        same(layer + "self_attn.v_proj.bias", "K", attention_bias),
        same(layer + "self_attn.o_proj.weight", "HQ"),
        same(layer + "self_attn.o_proj.bias", "H", o_bias),
        same(layer + "post_attention_layernorm.weight", "H"),
        same(layer + "mlp.gate_proj.weight", "IH"),
        same(layer + "mlp.gate_proj.bias", "I", has_mlp_bias),
        same(layer + "mlp.up_proj.weight", "IH"),
        same(layer + "mlp.up_proj.bias", "I", has_mlp_bias),
        same(layer + "mlp.down_proj.weight", "HI"),
        same(layer + "mlp.down_proj.bias", "H", has_mlp_bias),
        *extra,
        same("model.norm.weight", "H"),
        same("lm_head.weight", "VH", is_untied),
    )
