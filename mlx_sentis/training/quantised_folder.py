"""Model directories whose weights are quantised already, as `mlx_lm.convert -q` writes them.

`config.json` has `quantization` (bits, group size, mode; single modules by name), and a quantised module has packed
`weight`, `scales` and, in the affine mode, `biases`. Linear layers stay packed: they are the frozen weights of QLoRA
(Dettmers et al. 2023, arXiv 2305.14314). Half-precision scales and biases are widened, so that the model is
scale · integer + bias in fp32 everywhere, without a rounding of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_sentis.training.adapters.frozen import QuantizedMatrix
from mlx_sentis.training.adapters.model import adapted_modules, module_at
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.model_folder import ModelFolder

QUANTISED = (nn.QuantizedLinear, nn.QuantizedEmbedding)


def is_quantised(folder: ModelFolder) -> bool:
    """Tell whether a directory holds packed weights.

    Raises:
        StageError: they are packed in another way than MLX's.
    """
    if "quantization" in folder.config:
        return True
    foreign = folder.config.get("quantization_config")
    if foreign:
        method = foreign.get("quant_method", "unknown") if isinstance(foreign, dict) else "unknown"
        hint = "give the model in full precision and --set adapter.quantise=4, or `mlx_lm.convert -q` it"
        raise StageError(f"{folder.path}/config.json: weights quantised by {method!r}, not by MLX", hint=hint)
    return False


def load_packed(network: nn.Module, folder: ModelFolder) -> None:
    """Quantise a network's modules as a directory says and load its weights.

    Args:
        network: mlx-lm's, freshly built.
        folder: of packed weights.

    Raises:
        StageError: the configuration makes no sense, or tensors do not fit; all at once.
    """
    tied = folder.config["tie_word_embeddings"]  # some writers store the tied head a second time
    stored = (
        (name, array) for name, array in folder.tensors(as_fp32=False) if not (tied and name.startswith("lm_head."))
    )
    found: dict[str, mx.array] = {name: mx.array(_wide(array)) for name, array in stored}
    if hasattr(network, "sanitize"):  # Phi-3's and Gemma 2's definitions have none
        found = network.sanitize(found)  # pyright: ignore
    _quantise_as_stored(network, folder, found)
    wanted: dict[str, mx.array] = dict(tree_flatten(network.parameters()))  # pyright: ignore
    faults = [f"{name}: missing, wanted {wanted[name].shape}" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: found {found[name].shape}, not in the definition" for name in found.keys() - wanted.keys()]
    faults += [
        f"{name}: found {found[name].shape}, wanted {wanted[name].shape}"
        for name in wanted.keys() & found.keys()
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        hint = "bits and group_size in config.json must be those the weights were packed with"
        raise all_at_once(f"{folder.path}: packed tensors do not fit:", faults, hint=hint)
    network.load_weights(list(found.items()), strict=True)


def widen(network: nn.Module) -> None:
    """Dequantise what carries no adapter, once: embeddings, head, layers that no target chose.

    For the CPU, whose kernel takes 8 ms a row for 2048 × 2048 at 4 bits; the numbers stay the same. On Metal packed
    modules are fast and small, and nothing is done.
    """
    if mx.default_device() != mx.cpu:
        return
    inside = tuple(f"{name}." for name, _ in adapted_modules(network))
    for name, module in list(network.named_modules()):
        if not isinstance(module, QUANTISED) or name.startswith(inside):
            continue
        weight = QuantizedMatrix(module).rows(0, module.weight.shape[0])
        rows, width = weight.shape
        plain: nn.Module
        if isinstance(module, nn.QuantizedLinear):
            plain = nn.Linear(width, rows, bias="bias" in module)
            if "bias" in module:
                plain.bias = module.bias
        else:
            plain = nn.Embedding(rows, width)
        plain.weight = weight
        plain.freeze()
        mx.eval(plain.parameters())
        parent, leaf = module_at(network, name.rpartition(".")[0]), name.rpartition(".")[2]
        setattr(parent, leaf, plain.train(module.training))


def _quantise_as_stored(network: nn.Module, folder: ModelFolder, stored: Mapping[str, Any]) -> None:
    config: Any = folder.config["quantization"]
    where = f"{folder.path}/config.json: quantization"
    if not isinstance(config, dict) or not {"bits", "group_size"} <= config.keys():
        raise StageError(f"{where}: found {config!r}, wanted bits and group_size", hint="give a whole model directory")

    def options_of(name: str, module: nn.Module) -> Any:
        if not hasattr(module, "to_quantized"):
            return False
        return config.get(name, f"{name}.scales" in stored)

    options = {"group_size": config["group_size"], "bits": config["bits"], "mode": config.get("mode", "affine")}
    try:
        nn.quantize(network, **options, class_predicate=options_of)
    except (ValueError, TypeError, KeyError) as error:
        raise StageError(f"{where}: {error}", hint="give the directory as `mlx_lm.convert -q` wrote it") from None


def _wide(array: Array) -> Array:
    """Return half-precision numbers widened; packed integers stay what they are."""
    half = array.dtype.itemsize == 2 and not np.issubdtype(array.dtype, np.integer)
    return array.astype(np.float32) if half else array
