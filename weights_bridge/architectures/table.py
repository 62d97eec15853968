"""What an architecture table says, and how it is read in both directions.

Legend of decoders: `V` vocabulary, `H` hidden width, `Q` query heads × head width, `K` key/value heads × head width,
`D` head width, `I` intermediate width, `L` layers, `F` = Q + 2 K (fused), `G` = 2 I (fused).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weights_bridge import layouts
from weights_bridge.compare import Array
from weights_bridge.errors import all_at_once

ALL_STAGES = ("recipe", "prepare", "train", "bridge", "export", "swap", "parity", "eval")
DECODER_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
Config = Mapping[str, Any]
Get = Callable[[str], Array]


@dataclass(frozen=True)
class Tensor:
    """One row of a table.

    Attributes:
        torch: the name in a Hugging Face checkpoint, `{i}` for the layer.
        mlx: the name in MLX's definition, `{i}` for the layer.
        shape: letters of the legend, in torch's order.
        layout: how torch's axes become MLX's, a key of `layouts.MLX_AXES`.
        when: tells from the configuration whether the tensor exists.
        count: the letter that says how many layers `{i}` runs over.
        parts: where MLX has several tensors for torch's one: their names and letters, in the order of the rows.
        rotary: whether its rows are rotated queries or keys, which a `rope_traditional` definition wants interleaved.
    """

    torch: str
    mlx: str
    shape: str
    layout: str = "same"
    when: Callable[[Config], bool] = lambda config: True
    count: str = "L"
    parts: tuple[tuple[str, str], ...] = ()
    rotary: bool = False


@dataclass(frozen=True)
class Drop:
    """Tensors that checkpoints may hold and the table leaves out on purpose.

    Attributes:
        name: a regular expression over the whole torch name.
        why: what makes them superfluous.
    """

    name: str
    why: str


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


def dimensions(config: Config) -> dict[str, int]:
    """Return the legend's letters for a decoder's normalised configuration."""
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_width = config.get("head_dim") or width // heads
    sizes = {
        "V": config["vocab_size"],
        "H": width,
        "Q": heads * head_width,
        "K": (config.get("num_key_value_heads") or heads) * head_width,
        "D": head_width,
        "I": config["intermediate_size"],
        "L": config["num_hidden_layers"],
    }
    return sizes | {"F": sizes["Q"] + 2 * sizes["K"], "G": 2 * sizes["I"]}


@dataclass(frozen=True)
class Architecture:
    """One architecture: its tensors and its constants.

    Attributes:
        model_type: `config.json`'s `model_type`.
        family: the I/O contract it is exported under.
        tensors: the table.
        sliding: whether some layers attend to a window only (then the graph has a second mask input).
        rotary_by_kind: whether sliding layers have a rotary base of their own.
        mends: named corrections of the MLX definition.
        definition: the module of mlx-lm that defines it, where it bears another name; empty where mlx-lm has none.
        torch_class: transformers' class that opens a directory; empty where it has none.
        stages: what covers it.
        tied: whether the head shares the embedding's table where the configuration does not say.
        drops: what checkpoints may hold beside the table.
        needed: keys that `config.json` must have as whole numbers above 0.
        sizes: the letters of its shapes from a configuration.
    """

    model_type: str
    family: str
    tensors: tuple[Tensor, ...]
    sliding: bool = False
    rotary_by_kind: bool = False
    mends: tuple[Mend, ...] = ()
    definition: str | None = None
    torch_class: str = "AutoModelForCausalLM"
    stages: tuple[str, ...] = ALL_STAGES
    tied: bool = False
    drops: tuple[Drop, ...] = ()
    needed: tuple[str, ...] = DECODER_SIZES
    sizes: Callable[[Config], dict[str, int]] = dimensions

    @property
    def mlx_lm_module(self) -> str:
        """mlx-lm's module of this architecture, empty where there is none."""
        return self.model_type if self.definition is None else self.definition

    def expand(self, config: Config) -> Iterator[tuple[Tensor, str, str, tuple[int, ...]]]:
        """Yield (row, torch name, MLX name, torch shape) of every tensor that a configuration has."""
        sizes = self.sizes(config)
        for row in self.tensors:
            if not row.when(config):
                continue
            shape = tuple(sizes[letter] for letter in row.shape)
            for i in range(sizes[row.count]) if "{i}" in row.torch else (0,):
                yield row, row.torch.format(i=i), row.mlx.format(i=i), shape

    def torch_shapes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Return torch name to shape of every tensor that a configuration has."""
        return {torch: shape for _, torch, _, shape in self.expand(config)}

    def mlx_shapes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Return MLX name to shape of every tensor that a configuration has."""
        sizes, shapes = self.sizes(config), {}
        for row, torch, mlx, shape in self.expand(config):
            for name, letter in parts_of(row, torch, mlx):
                side = (sizes[letter], *shape[1:]) if letter else shape
                shapes[name] = layouts.mlx_shape(side, row.layout)
        return shapes

    def mlx_from_torch(self, config: Config) -> dict[str, str]:
        """Return torch name to MLX name; the inverse is derived, never typed."""
        return {torch: mlx for _, torch, mlx, _ in self.expand(config)}

    def torch_from_mlx(self, config: Config) -> dict[str, str]:
        """Return MLX name to torch name."""
        return {mlx: torch for torch, mlx in self.mlx_from_torch(config).items()}

    def mlx_tensors(self, config: Config, get: Get) -> Iterator[tuple[str, Array]]:
        """Yield (MLX name, array) one at a time, each in the type it had.

        Args:
            config: normalised.
            get: returns a torch tensor by its name, in torch's layout.
        """
        sizes = self.sizes(config)
        for row, torch, mlx, _ in self.expand(config):
            array = get(torch)
            if row.rotary and config.get("rope_traditional"):
                array = layouts.interleaved_from_halves(array, *_heads(config, sizes, len(array)))
            start = 0
            for name, letter in parts_of(row, torch, mlx):
                end = start + sizes[letter] if letter else len(array)
                yield name, layouts.mlx_from_torch(array[start:end], row.layout)
                start = end

    def torch_tensors(self, config: Config, get: Get) -> Iterator[tuple[str, Array]]:
        """Yield (torch name, array) one at a time: the table read the other way.

        Args:
            config: normalised.
            get: returns an MLX tensor by its name, in MLX's layout.
        """
        sizes = self.sizes(config)
        for row, torch, mlx, _ in self.expand(config):
            pieces = [layouts.torch_from_mlx(get(name), row.layout) for name, _ in parts_of(row, torch, mlx)]
            array = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            if row.rotary and config.get("rope_traditional"):
                array = layouts.halves_from_interleaved(array, *_heads(config, sizes, len(array)))
            yield torch, array

    def is_dropped(self, name: str, config: Config) -> str:
        """Return why a tensor of a checkpoint is left out on purpose, empty when it is not."""
        for drop in (*self.drops, *((TIED_HEAD,) if config.get("tie_word_embeddings") else ())):
            if re.fullmatch(drop.name, name):
                return drop.why
        return ""

    def check_names(self) -> None:
        """Require that both sides' names are one-to-one.

        Raises:
            StageError: a name stands twice on one side.
        """
        rows = [(row.torch, name) for row in self.tensors for name, _ in parts_of(row, row.torch, row.mlx)]
        sides = ([row.torch for row in self.tensors], [name for _, name in rows])
        faults = [f"{name}: stands {side.count(name)} times" for side in sides for name in _repeated(side)]
        if faults:
            raise all_at_once(f"table of {self.model_type}:", faults, hint="each name belongs to one row")

    def linear_modules(self, config: Config) -> dict[str, tuple[int, int]]:
        """Return torch module name to (out, in) of every Linear inside the layers: what `all-linear` trains."""
        shapes = self.torch_shapes(config)
        return {
            name.removesuffix(".weight"): (shape[0], shape[1])
            for name, shape in shapes.items()
            if len(shape) == 2 and re.search(r"\.layers?\.\d+\.", name)
        }


TIED_HEAD = Drop(
    r"(lm_head|proj_out)\.(weight|scales|biases)", "the head is tied: the embedding's table is stored once"
)
ROTARY = Drop(r".*\.rotary_emb\.inv_freq", "older checkpoints store the rotary frequencies, which the base gives")


def parts_of(row: Tensor, torch: str, mlx: str) -> list[tuple[str, str]]:
    """Return (MLX name, letter of its rows) of one expanded row; one part has no letter."""
    if not row.parts:
        return [(mlx, "")]
    layer = re.search(r"\.layers?\.(\d+)\.", torch)
    return [(name.format(i=layer[1] if layer else 0), letter) for name, letter in row.parts]


def _heads(config: Config, sizes: Mapping[str, int], rows: int) -> tuple[int, int]:
    """Return (heads in so many rows, coordinates of a head that are rotated)."""
    return rows // sizes["D"], int(sizes["D"] * (config.get("partial_rotary_factor") or 1.0))


def _repeated(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})


def is_untied(config: Config) -> bool:
    """Tell whether the head has a table of its own."""
    return not config["tie_word_embeddings"]


def same(name: str, shape: str, when: Callable[[Config], bool] = lambda config: True, rotary: bool = False) -> Tensor:
    """Return a row whose name and layout both sides share."""
    return Tensor(name, name, shape, when=when, rotary=rotary)


def decoder(*extra: Tensor, qkv_bias: bool | None = None, mlp_bias: bool = False) -> tuple[Tensor, ...]:
    """Return the rows that Llama-like decoders share; mlx-lm keeps Hugging Face's names.

    Args:
        extra: rows this architecture adds.
        qkv_bias: True when q, k and v always have a bias, False never, None as `attention_bias` says (then o too).
        mlp_bias: whether `mlp_bias` in the configuration is honoured.
    """

    def attention_bias(config: Config) -> bool:
        return bool(config.get("attention_bias")) if qkv_bias is None else qkv_bias

    def o_bias(config: Config) -> bool:
        return qkv_bias is None and attention_bias(config)

    def has_mlp_bias(config: Config) -> bool:
        return mlp_bias and bool(config.get("mlp_bias"))

    layer = "model.layers.{i}."
    return (
        same("model.embed_tokens.weight", "VH"),
        same(layer + "input_layernorm.weight", "H"),
        same(layer + "self_attn.q_proj.weight", "QH", rotary=True),
        same(layer + "self_attn.q_proj.bias", "Q", attention_bias, rotary=True),
        same(layer + "self_attn.k_proj.weight", "KH", rotary=True),
        same(layer + "self_attn.k_proj.bias", "K", attention_bias, rotary=True),
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
