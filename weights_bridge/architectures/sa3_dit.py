"""The diffusion transformer of Stable Audio 3, small and medium, in the names of its checkpoint and of its MLX files.

Torch's names stand below `model.model.`, the linear layer of the length in seconds below `conditioner.`. MLX's are
those of the public `dit_*_f16.npz` (stable-audio-3, optimized/mlx at 636f906): `gamma` is `weight` there, convolutions
have their channels last, `to_local_embed` is a sequence. Rotary embeddings pair halves on both sides. transformers has
no class and mlx-lm none, so nothing opens what is written; counts of tensors and parameters are held against the
checkpoints' (438 and 522 tensors, 459.1 and 1,453.2 million parameters, the frequencies' buffer among them).

Legend: `E` width, `L` blocks, `F` inner width of the MLP, `X` = 2 F, `C` latent channels, `K` width of the conditions,
`M` memory tokens, `N` features of a time, `S` = 6 E, `P` = C + 1, `W` = 1, `H` head width, `A` rows of the self
attention's q, k, v (3 E; 5 E where it is differential), `Q` and `V` those of the cross attention's queries (E, 2 E) and
keys and values (2 E, 3 E).
"""

from __future__ import annotations

from collections.abc import Mapping

from weights_bridge.architectures.table import Architecture, Config, Drop, Tensor

TOP, BLOCK = "model.model.", "transformer.layers.{i}."
SECONDS = "conditioner.conditioners.seconds_total.embedder.embedding.1."
HEAD_WIDTH, CONDITION, FEATURES, MEMORY, LATENT = 64, 768, 256, 64, 256  # of both published sizes
SMALL = {"hidden_size": 1024, "num_hidden_layers": 20, "intermediate_size": 4096, "differential": False}
MEDIUM = {"hidden_size": 1536, "num_hidden_layers": 24, "intermediate_size": 6144, "differential": True}


def sizes(config: Config) -> dict[str, int]:
    """Return the legend's letters."""
    width, twice = config["hidden_size"], bool(config.get("differential"))
    latent, inner = config.get("latent_channels") or LATENT, config["intermediate_size"]
    condition, features = config.get("condition_size") or CONDITION, config.get("time_features") or FEATURES
    memory, head = config.get("memory_tokens") or MEMORY, config.get("head_dim") or HEAD_WIDTH
    found = {"E": width, "L": config["num_hidden_layers"], "F": inner, "X": 2 * inner, "C": latent, "P": latent + 1}
    found |= {"K": condition, "N": features, "M": memory, "H": head, "W": 1, "S": 6 * width}
    return found | {"A": (5 if twice else 3) * width, "Q": (1 + twice) * width, "V": (2 + twice) * width}


def config_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int | bool | str]:
    """Return the configuration that a checkpoint's shapes mean; its files have no `config.json`.

    Args:
        shapes: torch name to shape.
    """
    width, latent = shapes[f"{TOP}transformer.project_in.weight"]
    block = TOP + BLOCK.format(i=0)
    layers = {name.split(".")[4] for name in shapes if name.startswith(f"{TOP}transformer.layers.")}
    return {
        "model_type": "sa3_dit",
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "intermediate_size": shapes[f"{block}ff.ff.2.weight"][1],
        "differential": shapes[f"{block}self_attn.to_qkv.weight"][0] == 5 * width,
        "latent_channels": latent,
        "condition_size": shapes[f"{TOP}to_cond_embed.0.weight"][1],
        "time_features": shapes[f"{TOP}to_timestep_embed.0.weight"][1],
        "memory_tokens": shapes[f"{TOP}transformer.memory_tokens"][0],
        "head_dim": shapes[f"{block}self_attn.q_norm.gamma"][0],
    }


def _row(name: str, shape: str, layout: str = "same", mlx: str = "") -> Tensor:
    return Tensor(TOP + name, mlx or name, shape, layout)


def _linear(name: str, shape: str, mlx: str = "") -> tuple[Tensor, Tensor]:
    """Return the rows of a linear layer with a bias."""
    mlx = mlx or name
    return _row(f"{name}.weight", shape, mlx=f"{mlx}.weight"), _row(f"{name}.bias", shape[0], mlx=f"{mlx}.bias")


def _gain(name: str, shape: str) -> Tensor:
    return _row(f"{name}.gamma", shape, mlx=f"{name}.weight")


ARCHITECTURE = Architecture(
    "sa3_dit",
    "audio_diffusion",
    (
        *_linear("to_timestep_embed.0", "EN"),
        *_linear("to_timestep_embed.2", "EE"),
        *(
            _row(f"to_{kind}_embed.{at}.weight", "EK" if at == 0 else "EE")
            for kind in ("cond", "global")
            for at in (0, 2)
        ),
        _row("preprocess_conv.weight", "CCW", "conv1d"),
        _row("postprocess_conv.weight", "CCW", "conv1d"),
        _row("transformer.project_in.weight", "EC"),
        _row("transformer.project_out.weight", "CE"),
        _row("transformer.memory_tokens", "ME"),
        *_linear("transformer.global_cond_embedder.0", "EE"),
        *_linear("transformer.global_cond_embedder.2", "SE"),
        _row(BLOCK + "to_scale_shift_gate", "S"),
        *(_gain(BLOCK + norm, "E") for norm in ("pre_norm", "cross_attend_norm", "ff_norm")),
        _row(BLOCK + "self_attn.to_qkv.weight", "AE"),
        _row(BLOCK + "cross_attn.to_q.weight", "QE"),
        _row(BLOCK + "cross_attn.to_kv.weight", "VE"),
        *(_row(f"{BLOCK}{kind}_attn.to_out.weight", "EE") for kind in ("self", "cross")),
        *(_gain(f"{BLOCK}{kind}_attn.{side}_norm", "H") for kind in ("self", "cross") for side in "qk"),
        *_linear(BLOCK + "ff.ff.0.proj", "XE"),
        *_linear(BLOCK + "ff.ff.2", "EF"),
        *_linear(BLOCK + "to_local_embed.0", "EP", BLOCK + "to_local_embed.seq.0"),
        *_linear(BLOCK + "to_local_embed.2", "EE", BLOCK + "to_local_embed.seq.2"),
        Tensor(SECONDS + "weight", "cond.seconds_total_weight", "KN"),
        Tensor(SECONDS + "bias", "cond.seconds_total_bias", "K"),
    ),
    definition="",
    torch_class="",
    stages=("bridge",),
    drops=(
        Drop(r"(model\.model\.)?transformer\.rotary_pos_emb\.inv_freq", "a buffer that the base 10000 gives"),
        Drop(r"pretransform\..*", "the autoencoder, which is frozen and has files of its own"),
        Drop(r"cond\.padding_embedding", "the prompt's padding; its name in the torch checkpoint is not known here"),
    ),
    needed=("hidden_size", "num_hidden_layers", "intermediate_size"),
    sizes=sizes,
)
