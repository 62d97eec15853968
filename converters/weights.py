"""Weights on their way from a model directory into a graph: names, transforms, types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.model_folder import ModelFolder

if TYPE_CHECKING:
    import onnx

FP16_MAX = 65504.0


def fill(
    folder: ModelFolder, model: onnx.ModelProto, sources: dict[str, dict[str, str]]
) -> Iterator[tuple[str, Array]]:
    """Yield (initialiser name, array) for every tensor of a directory, in file order, one at a time.

    Args:
        folder: the model directory.
        model: declares each initialiser's type.
        sources: initialiser name to `{"torch": …, "transform": "same" | "transpose"}`.

    Raises:
        StageError: a value does not fit float16.
    """
    half = {t.name for t in model.graph.initializer if t.data_type == _types()["fp16"]}
    by_torch = {entry["torch"]: (name, entry["transform"]) for name, entry in sources.items()}
    for torch_name, array in folder.tensors():
        if torch_name not in by_torch:
            continue  # a tied head stored a second time; `check_fit` has named everything else
        name, transform = by_torch[torch_name]
        if name in half and array.size and (largest := float(np.abs(array).max())) > FP16_MAX:
            raise StageError(f"{torch_name}: {largest:g} does not fit fp16 (65504)", hint="use --dtype fp32")
        turned = array.T if transform == "transpose" else array
        yield name, np.ascontiguousarray(turned, np.float16 if name in half else np.float32)


def check_fit(folder: ModelFolder, model: onnx.ModelProto, sources: dict[str, dict[str, str]]) -> list[str]:
    """Require that each initialiser has its tensor in the directory with the right shape, and name what is left.

    Returns:
        Tensors of the directory that no initialiser takes (a tied head stored twice).

    Raises:
        StageError: all that is missing, extra or of another shape at once.
    """
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    found = folder.torch_shapes()
    wanted = {}
    for name, entry in sources.items():
        wanted[entry["torch"]] = dims[name][::-1] if entry["transform"] == "transpose" else dims[name]
    faults = [f"{name}: missing, wanted {shape}" for name, shape in wanted.items() if name not in found]
    faults += [
        f"{name}: found {found[name]}, wanted {shape}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    left = sorted(found.keys() - wanted.keys())
    spare = {"lm_head.weight"} if folder.config["tie_word_embeddings"] else set()
    faults += [f"{name}: found {found[name]}, the graph has no place for it" for name in left if name not in spare]
    if faults:
        hint = "the directory must be a checkpoint of the architecture and sizes the graph was exported from"
        raise all_at_once(f"{folder.path}: tensors do not fit the graph:", faults, hint=hint)
    return left


def store_as_fp16(model: onnx.ModelProto, names: list[str]) -> list[str]:
    """Declare matrices as float16 and widen each once with a Cast, so that arithmetic stays float32.

    Sentis widens float16 initialisers exactly on import and its Cast to float is then a no-op; ONNX Runtime folds
    the Cast at load. Vectors (norms, biases) stay float32: they weigh nothing.

    Returns:
        The initialisers that became float16.
    """
    import onnx

    matrices = [t for t in model.graph.initializer if t.name in set(names) and len(t.dims) > 1]
    wide = {tensor.name: f"{tensor.name}:fp32" for tensor in matrices}
    for tensor in matrices:
        tensor.data_type = onnx.TensorProto.FLOAT16
    for node in model.graph.node:
        node.input[:] = [wide.get(name, name) for name in node.input]
    casts = [
        onnx.helper.make_node("Cast", [name], [to], name=to, to=onnx.TensorProto.FLOAT) for name, to in wide.items()
    ]
    nodes = [*casts, *model.graph.node]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return list(wide)


def _types() -> dict[str, Any]:
    import onnx

    return {"fp32": onnx.TensorProto.FLOAT, "fp16": onnx.TensorProto.FLOAT16}
