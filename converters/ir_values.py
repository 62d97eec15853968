"""Values of onnx-ir graphs: constants, and fresh ones of another's type."""

from __future__ import annotations

from typing import Any

import numpy as np


def constant(graph: Any, array: np.ndarray) -> Any:
    """Add an initialiser with a name of its own and return its value."""
    import onnx_ir

    tensor: Any = onnx_ir.tensor(np.ascontiguousarray(array).reshape(array.shape))
    name = f"constant.{len(graph.initializers)}"
    while name in graph.initializers:
        name += "x"
    value = onnx_ir.Value(name=name, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor)
    graph.initializers[name] = value
    return value


def like(value: Any, name: str) -> Any:
    """Return a fresh value of another's type and shape."""
    import onnx_ir

    return onnx_ir.Value(name=name, shape=value.shape, type=value.type)
