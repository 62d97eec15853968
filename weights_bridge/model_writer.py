"""Writing a whole model directory, in torch's layout or in MLX's, tensor by tensor."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weights_bridge.architectures.table import parts_of
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, read_json, write_json
from weights_bridge.model_config import QUANTISED
from weights_bridge.model_folder import TOKENIZER_FILES, ModelFolder, Origin
from weights_bridge.safetensors_reader import DTYPES as STORED
from weights_bridge.safetensors_writer import SHARD_BYTES, write_model
from weights_bridge.weight_files import open_weights, require_inside

DTYPES: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype("<f4"),
    "fp16": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
WORD = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
ROPE = ("rope_theta", "rope_local_base_freq")


def write_model_folder(
    new: Path,
    base: ModelFolder,
    tensors: Iterable[tuple[str, Array]],
    dtype: str,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write weights and everything around them into an empty directory, in torch's layout and one type.

    Args:
        new: the directory.
        base: where configuration and tokenizer come from.
        tensors: (torch name, array) pairs; what the table does not know is left out.
        dtype: a key of `DTYPES`, which the arrays have already.
        shard_bytes: the most a shard holds.
    """
    shapes = torch_shapes_in_order(base)
    kept = ((name, array) for name, array in tensors if name in shapes)
    write_model(new, shapes, kept, dict.fromkeys(shapes, DTYPES[dtype]), shard_bytes)
    copy_around(new, base)
    write_json(new / "config.json", plain_config(base, dtype))


def torch_shapes_in_order(base: ModelFolder) -> dict[str, tuple[int, ...]]:
    """Return torch name to shape of what the table knows, in the order in which `base.tensors` yields it."""
    wanted = base.architecture.torch_shapes(base.config)
    order = [name for name in base.stored if name in wanted] if base.origin == "torch" else list(wanted)
    return {name: wanted[name] for name in order}


def plain_config(base: ModelFolder, dtype: str) -> dict[str, Any]:
    """Return a base's `config.json` for weights of one type in torch's layout."""
    config = read_json(base.path / "config.json") | {"dtype": WORD[dtype]}
    config.pop("torch_dtype", None)  # transformers 4's word for the same
    for key in (*QUANTISED, "rope_traditional"):
        config.pop(key, None)
    # both places that readers look at (see `normalised_config`)
    return config | {key: base.config[key] for key in ROPE if key in base.config}


def copy_around(new: Path, base: ModelFolder) -> None:
    """Copy tokenizer, template, generation configuration and what else a model is used with.

    Raises:
        StageError: one of them is a link out of the directory.
    """
    for name in TOKENIZER_FILES:
        if (base.path / name).is_file():
            (new / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(require_inside(base.path, name), new / name)


def convert_folder(base: ModelFolder, to: Origin, out: Path, shard_bytes: int = SHARD_BYTES) -> list[str]:
    """Rewrite a model directory in the other side's names and layouts; every tensor keeps its type and its bits.

    To torch, packed weights are dequantised. A directory that is of the wanted side already comes out as it is.

    Args:
        base: the directory.
        to: whose layout to write.
        out: the directory to make.
        shard_bytes: the most a shard holds.

    Returns:
        The names of the weight files.

    Raises:
        StageError: tensors do not fit the architecture or hold NaN; all at once.
    """
    base.check_tensors(values=True)
    config = read_json(base.path / "config.json")
    if to == "torch":
        for key in (*QUANTISED, "rope_traditional"):
            config.pop(key, None)
    shapes, dtypes = _announced(base, to)
    with folder_written_whole(out) as new:
        files = write_model(new, shapes, _tensors(base, to), dtypes, shard_bytes, {"format": FORMAT[to]})
        copy_around(new, base)
        config |= {key: base.config[key] for key in ROPE if key in base.config}
        write_json(new / "config.json", config)
    return files


FORMAT: dict[Origin, str] = {"torch": "pt", "mlx": "mlx"}


def origin_of(path: Path) -> Origin:
    """Return whose layout a directory's files say they have (`format` in their metadata): MLX writes `mlx`.

    Raises:
        StageError: two files say different things.
    """
    said = {file.metadata.get("format") == "mlx" for file in open_weights(path).values()}
    if len(said) > 1:
        raise StageError(f"{path}: some files say MLX wrote them, some do not", hint="fetch one whole directory")
    return "mlx" if said == {True} else "torch"


def _tensors(base: ModelFolder, to: Origin) -> Iterator[tuple[str, Array]]:
    wanted = set(base.architecture.torch_shapes(base.config))
    if to == base.origin == "mlx":  # packed or not, as it lies there
        return ((name, base.stored[name].tensor(name)) for name in base.wanted_shapes())
    if to == "torch":
        return ((name, array) for name, array in base.tensors(as_fp32=False) if name in wanted)
    return base.architecture.mlx_tensors(base.config, lambda name: base.stored[name].tensor(name))


def _announced(base: ModelFolder, to: Origin) -> tuple[dict[str, tuple[int, ...]], dict[str, np.dtype[Any]]]:
    """Return name to shape and to type of what `_tensors` yields, in its order."""
    table, config = base.architecture, base.config
    if to == base.origin == "mlx":
        shapes = base.wanted_shapes()
        return shapes, {name: base.stored[name].entries[name].dtype for name in shapes}
    if to == base.origin == "torch":
        wanted = table.torch_shapes(config)
        shapes = {name: wanted[name] for name in base.stored if name in wanted}
        return shapes, {name: base.stored[name].entries[name].dtype for name in shapes}
    if to == "mlx":
        source = {name: torch for row, torch, mlx, _ in table.expand(config) for name, _ in parts_of(row, torch, mlx)}
        return table.mlx_shapes(config), {mlx: base.stored[torch].entries[torch].dtype for mlx, torch in source.items()}
    source = {torch: parts_of(row, torch, mlx)[0][0] for row, torch, mlx, _ in table.expand(config)}
    return table.torch_shapes(config), {torch: _unpacked_dtype(base, mlx) for torch, mlx in source.items()}


def _unpacked_dtype(base: ModelFolder, name: str) -> np.dtype[Any]:
    packing = base.packing(name)
    if packing is None:
        return base.stored[name].entries[name].dtype
    scales = name.removesuffix("weight") + "scales"
    return base.stored[scales].entries[scales].dtype if packing.mode == "affine" else STORED["F32"]
