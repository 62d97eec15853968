"""Pickle checkpoints (`.bin`, `.pt`, `.ckpt`) as plain tensors, only where a user allows it, and only as weights.

torch's weights-only loader unpickles tensors and containers and refuses everything that would run code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.safetensors_reader import DTYPES, NAME_OF_DTYPE
from weights_bridge.safetensors_writer import write_model
from weights_bridge.weight_files import PICKLES, require_inside, weight_map

INDEX = "pytorch_model.bin.index.json"
HINT = "only a file of tensors by name is taken; get the model as safetensors"


def pickle_files(folder: Path) -> list[Path]:
    """Return the pickle files that hold a directory's weights: those of the index, else `pytorch_model.bin`, else all.

    Raises:
        StageError: there is none, or one lies outside of the directory.
    """
    if (folder / INDEX).is_file():
        names = sorted(set(weight_map(folder, INDEX).values()))
    else:
        all_names = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        names = ["pytorch_model.bin"] if "pytorch_model.bin" in all_names else all_names
    if not names:
        raise StageError(f"{folder}: no file of {', '.join(PICKLES)}", hint="give a directory with weights")
    return [require_inside(folder, name) for name in names]


def tensors_of_pickle(path: Path) -> dict[str, Array]:
    """Return name to array, each in the type it was stored in.

    Raises:
        StageError: it holds more than tensors by name, or cannot be read.
    """
    import torch

    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler, zip reader and tensors happen to raise
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StageError(f"{path}: not read as weights only: {first}", hint=HINT) from None
    while isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise StageError(f"{path}: found {type(content).__name__}, wanted tensors by name", hint=HINT)
    if strange := [name for name, value in content.items() if not isinstance(value, torch.Tensor)]:
        raise StageError(f"{path}: {strange[0]!r} is no tensor", hint=HINT)
    arrays = {str(name): _array(value) for name, value in content.items()}
    if faults := [f"{name}: {content[name].dtype}, {content[name].layout}" for name, a in arrays.items() if a is None]:
        raise all_at_once(f"{path}: tensors that safetensors have no form for:", faults, hint=HINT)
    return {name: array for name, array in arrays.items() if array is not None}


def _array(tensor: Any) -> Array | None:
    """Return a tensor's array; None of one without values in memory, or of a type that safetensors do not have."""
    import torch

    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return None
    tensor = tensor.detach().contiguous()
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):  # numpy knows their bytes only
        name = {torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}[tensor.dtype]
        return tensor.reshape(-1).view(torch.uint8).numpy().view(DTYPES[name]).reshape(tuple(tensor.shape))
    array = tensor.resolve_conj().resolve_neg().numpy()
    return array if array.dtype in NAME_OF_DTYPE else None


def write_safetensors_of_pickles(folder: Path, out: Path) -> list[str]:
    """Write a directory's pickled weights as safetensors.

    Args:
        folder: a model directory with pickle files.
        out: an empty directory.

    Returns:
        The names of the files written.
    """
    where: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, Any] = {}
    for path in pickle_files(folder):
        for name, array in tensors_of_pickle(path).items():
            if name in where:
                raise StageError(f"{name}: in {where[name].name} and in {path.name}", hint="fetch the files again")
            where[name], shapes[name], dtypes[name] = path, array.shape, array.dtype

    def tensors() -> Iterator[tuple[str, Array]]:
        for path in dict.fromkeys(where.values()):
            yield from tensors_of_pickle(path).items()

    return write_model(out, shapes, tensors(), dtypes)
