"""Proof that a pass keeps the numbers: the model before and after it, in ONNX Runtime, on inputs in range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.ort_session import open_session
from weights_bridge.compare import Array, GateResult, compare_sets
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

DYNAMIC_SIZES = (3, 4, 5, 6, 7)  # small and different from each other, so that a swapped axis shows
BUDGET_DB = 100.0


def runnable_inputs(model: onnx.ModelProto, path: Path, seed: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return inputs that ONNX Runtime accepts, and the outputs it gives for them.

    Dynamic sizes are tried as all different, all equal, and each in turn twice the others (a total length).

    Args:
        model: floats are drawn around 0, whole numbers are valid indices of every table.
        path: the model's file.
        seed: of the numbers.

    Raises:
        StageError: it runs with none of them.
    """
    why = ""
    for sizes in _guesses(model):
        inputs = random_inputs(model, sizes, seed)
        try:
            return inputs, outputs_of(path, inputs)
        except StageError as error:
            why = error.message
    raise StageError(f"{path}: no random inputs run: {why}", hint="give recorded ones with --fixture F.npz")


def _guesses(model: onnx.ModelProto) -> list[dict[str, int]]:
    names: dict[str, int] = {}
    for value in _fed(model):
        names |= dict.fromkeys((dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param), 0)
    different = {name: DYNAMIC_SIZES[i % len(DYNAMIC_SIZES)] for i, name in enumerate(names)}
    if {"query", "past", "total"} <= names.keys():
        different["total"] = different["query"] + different["past"]
    equal = dict.fromkeys(names, 3)
    return [different, equal, *({**equal, name: 6} for name in names)]


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]


def random_inputs(model: onnx.ModelProto, sizes: dict[str, int], seed: int = 0) -> dict[str, Array]:
    """Return one array per input of a model.

    Args:
        model: gives names, types and shapes.
        sizes: dynamic size by name.
        seed: of the numbers.
    """
    rng = np.random.default_rng(seed)
    limit = _index_limit(model)
    return {value.name: _array(value, sizes, limit, rng) for value in _fed(model)}


def _index_limit(model: onnx.ModelProto) -> int:
    """Return the shortest first axis that a Gather reads, so that indices stay inside every table."""
    dims = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    lengths = [dims[n.input[0]][0] for n in model.graph.node if n.op_type == "Gather" and len(dims.get(n.input[0], ()))]
    return max(1, min(lengths, default=2))


def _array(value: onnx.ValueInfoProto, sizes: dict[str, int], limit: int, rng: np.random.Generator) -> Array:
    import onnx

    kind = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, 2) for dim in kind.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, limit, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def outputs_of(model: Path | bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """Run a model in ONNX Runtime without its optimisations and return its outputs by name."""
    session = open_session(model, "off")
    names = [output.name for output in session.get_outputs()]
    try:
        values: list[Any] = session.run(names, inputs)
    except Exception as error:  # ORT's exception classes share no public base
        raise StageError(f"ONNX Runtime cannot run it: {str(error).splitlines()[0]}") from None
    return dict(zip(names, values, strict=True))


def prove_equal(
    before: dict[str, Array], model: Path | bytes, inputs: dict[str, Array], label: str
) -> list[GateResult]:
    """Compare a model's outputs with those recorded before a pass, at 100 dB or better."""
    return compare_sets(before, outputs_of(model, inputs), BUDGET_DB, prefix=f"{label} / ")
