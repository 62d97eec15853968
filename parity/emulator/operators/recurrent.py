"""LSTM, step by step in numpy: gates in ONNX' order, activation parameters at their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from parity.emulator.graph import FLT_MAX
from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws
from weights_bridge.compare import Array

F = np.float32
SIGMOID_LIMIT = 60.0
GATES: tuple[str, ...] = ("Sigmoid", "Tanh", "Tanh")


def _sigmoid(x: Array) -> Array:
    clamped = np.clip(x, F(-SIGMOID_LIMIT), F(SIGMOID_LIMIT))
    return F(1.0) / (F(1.0) + np.exp(-clamped))


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, F(0.0)),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "affine": lambda x: x,
    "leakyrelu": lambda x: np.where(x >= 0, x, F(0.01) * x),
    "thresholdedrelu": lambda x: np.where(x >= 1, x, F(0.0)),  # ONNX has >
    "scaledtanh": np.tanh,
    "hardsigmoid": lambda x: np.clip(F(0.2) * x + F(0.5), F(0.0), F(1.0)),
    "elu": lambda x: np.where(x >= 0, x, np.exp(x) - F(1.0)),
    "softsign": lambda x: F(1.0) / (F(1.0) + np.abs(x)),  # on the CPU; ONNX has x / (1 + |x|)
    "softplus": lambda x: np.log(F(1.0) + np.exp(x)),
}


def gates_of(given: list[str], directions: int) -> list[str]:
    """Return three activations per direction; what Sentis does not know is replaced by the default of its place."""
    wanted: list[str] = list(GATES) * directions
    for at, name in enumerate(given[: len(wanted)]):
        if name.lower() in ACTIVATIONS:
            wanted[at] = name
    return [name.lower() for name in wanted]


@form(
    "LSTM",
    says="alpha and beta are ignored, Softsign is 1/(1 + |x|), the argument of sigmoid is clamped to ±60",
)
def lstm(n: Node) -> None:
    n.floats(0, 1, 2)
    if "hidden_size" not in n.attributes:
        raise Throws(f"LSTM {n.label!r}: hidden_size must be given")
    direction = str(n.attributes.get("direction", "forward"))
    gates = gates_of(list(n.attributes.get("activations", [])), 2 if direction == "bidirectional" else 1)
    clip = float(n.attributes.get("clip", FLT_MAX))
    coupled, batch_first = bool(n.attributes.get("input_forget", 0)), int(n.attributes.get("layout", 0)) == 1
    inputs = [n.x(at) for at in range(8)]

    def run(
        x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None, h: Array | None, c: Array | None,
        p: Array | None,
    ) -> list[Array]:  # fmt: skip
        x = np.swapaxes(x, 0, 1) if batch_first else x
        h, c = (one if one is None or not batch_first else np.swapaxes(one, 0, 1) for one in (h, c))
        steps, batch, _ = x.shape
        found = []
        for at in range(len(w)):
            states = [np.zeros((batch, r.shape[2]), F) if one is None else one[at] for one in (h, c)]
            cell = _Cell(w[at], r[at], None if b is None else b[at], None if p is None else p[at],
                         gates[3 * at : 3 * at + 3], clip, coupled)  # fmt: skip
            turned = direction == "reverse" or (direction == "bidirectional" and at == 1)
            ends = np.full(batch, steps) if lengths is None else lengths.reshape(-1)
            found.append(cell.run(x, states[0], states[1], ends, turned))
        y = np.stack([one[0] for one in found], 1)
        last = [np.stack([one[at] for one in found]) for at in (1, 2)]
        if batch_first:
            return [y.transpose(2, 0, 1, 3), *(one.transpose(1, 0, 2) for one in last)]
        return [y, *last]

    n.numpy(run, inputs, "float", "float", "float")


class _Cell:
    """One direction: gates i, o, f, c, one after the other."""

    def __init__(
        self, w: Array, r: Array, b: Array | None, p: Array | None, gates: list[str], clip: float, coupled: bool
    ) -> None:
        hidden = r.shape[1]
        bias = np.zeros(8 * hidden, F) if b is None else b
        self.w, self.r, self.hidden = w.T, r.T, hidden
        self.bias = bias[: 4 * hidden] + bias[4 * hidden :]
        self.peepholes = np.zeros((3, hidden), F) if p is None else p.reshape(3, hidden)
        self.f, self.g, self.h = (ACTIVATIONS[name] for name in gates)
        self.clip, self.coupled = F(clip), coupled

    def run(self, x: Array, h: Array, c: Array, ends: Array, turned: bool) -> tuple[Array, Array, Array]:
        """Return Y [steps, batch, hidden], and the last hidden and cell state; steps behind a row's end are zero."""
        y = np.zeros((len(x), len(h), self.hidden), F)
        for step in range(len(x)):
            at = np.where(turned, ends - 1 - step, step)
            runs = (step < ends)[:, None]
            rows = np.clip(at, 0, len(x) - 1)
            taken = x[rows, np.arange(len(h))]
            new_h, new_c = self._step(taken, h, c)
            h, c = np.where(runs, new_h, h), np.where(runs, new_c, c)
            for row in np.flatnonzero(runs):
                y[rows[row], row] = h[row]
        return y, h, c

    def _step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, f, z = np.split(x @ self.w + h @ self.r + self.bias, 4, axis=1)
        pi, po, pf = self.peepholes
        i = self.f(self._clipped(i + pi * c))
        f = F(1.0) - i if self.coupled else self.f(self._clipped(f + pf * c))
        c = f * c + i * self.g(self._clipped(z))
        o = self.f(self._clipped(o + po * c))
        return (o * self.h(c)).astype(F), c.astype(F)

    def _clipped(self, x: Array) -> Array:
        return np.clip(x, -self.clip, self.clip)
