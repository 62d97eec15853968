"""A made model with context and two states: small enough to know what each step must say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHUNK, CONTEXT, WIDTH, STEPS = 8, 4, 3, 30
SPEC = """schema = "mlx-sentis/sequence/1"
outputs = ["y"]

[signal]
input = "x"
chunk = 8
context = 4
rate = 80

[state]
h = "hN"
c = "cN"

[reference]
file = "reference.npz"
"""


@dataclass
class Made:
    """Files of one made sequence."""

    folder: Path
    onnx: Path
    spec: Path
    signal: np.ndarray
    reference: np.ndarray


def weights(seed: int = 5) -> dict[str, np.ndarray]:
    """Return the matrices: `Wy`, `Wh`, `Wc` of the signal, `Uy`, `Uh`, `Uc` of h, `Vh`, `Vc` of c."""
    rng = np.random.default_rng(seed)
    shapes = {f"W{name}": (CONTEXT + CHUNK, WIDTH) for name in "hc"} | {"Wy": (CONTEXT + CHUNK, 1), "Uy": (WIDTH, 1)}
    shapes |= dict.fromkeys(("Uh", "Uc", "Vh", "Vc"), (WIDTH, WIDTH))
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def write_graph(path: Path, given: dict[str, np.ndarray], size: int = CONTEXT + CHUNK) -> Path:
    """Write y = σ(x Wy + h Uy), h' = tanh(x Wh + h Uh + c Vh), c' = tanh(x Wc + h Uc + c Vc)."""
    nodes = []
    for out, parts in {"y": ("xWy", "hUy"), "hN": ("xWh", "hUh", "cVh"), "cN": ("xWc", "hUc", "cVc")}.items():
        for part in parts:
            nodes.append(helper.make_node("MatMul", [part[0], part[1:]], [f"{out}.{part}"]))
        total = f"{out}.{parts[0]}"
        for at, part in enumerate(parts[1:]):
            nodes.append(helper.make_node("Add", [total, f"{out}.{part}"], [f"{out}.sum{at}"]))
            total = f"{out}.sum{at}"
        nodes.append(helper.make_node("Sigmoid" if out == "y" else "Tanh", [total], [out]))
    values = {"x": size, "h": WIDTH, "c": WIDTH, "y": 1, "hN": WIDTH, "cN": WIDTH}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in values.items()}
    graph = helper.make_graph(
        nodes,
        "made",
        [infos[name] for name in ("x", "h", "c")],
        [infos[name] for name in ("y", "hN", "cN")],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def whole(signal: np.ndarray, given: dict[str, np.ndarray]) -> np.ndarray:
    """Return y [steps, 1] of the whole signal in float64, from the equations."""
    w = {name: array.astype(np.float64) for name, array in given.items()}
    padded = np.concatenate([np.zeros(CONTEXT), signal.astype(np.float64)])
    h = c = np.zeros(WIDTH)
    found = []
    for start in range(0, signal.size, CHUNK):
        x = padded[start : start + CONTEXT + CHUNK]
        found.append(1 / (1 + np.exp(-(x @ w["Wy"] + h @ w["Uy"]))))
        h, c = np.tanh(x @ w["Wh"] + h @ w["Uh"] + c @ w["Vh"]), np.tanh(x @ w["Wc"] + h @ w["Uc"] + c @ w["Vc"])
    return np.array(found)
