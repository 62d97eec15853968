"""One step of RNN, GRU and LSTM, written with products, gates and activations.

Shapes: B rows, H state. `step` is the product of the step's input with all gates' weights and biases, [B, gates · H].
Formulas and the order of gates: ONNX operator definitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from converters.passes.emit import Emit, Refusal

PLAIN = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign", "softplus": "Softplus"}
WITH_ALPHA = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "elu": 1.0}
WITH_BOTH = {"affine": (1.0, 0.0), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5)}


@dataclass(frozen=True)
class Activation:
    """An activation of a gate and its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent node.

    Attributes:
        recurrent: weights of the state, [H, gates · H].
        bias: of the state's product where it is reset before it is added (GRU), else empty.
        activations: of the gates, in ONNX' order.
        state: H.
        clip: bound of what goes into activations, 0 for none.
    """

    recurrent: str
    bias: str
    activations: list[Activation]
    state: int
    clip: float

    @staticmethod
    def with_parameters(names: list[str], alphas: list[float], betas: list[float]) -> list[Activation]:
        """Return activations; parameters are dealt out to those that have some, in order."""
        made = []
        alphas, betas = list(alphas), list(betas)
        for name in (str(name).lower() for name in names):
            if name in PLAIN:
                made.append(Activation(name))
            elif name in WITH_ALPHA:
                made.append(Activation(name, alphas.pop(0) if alphas else WITH_ALPHA[name]))
            elif name in WITH_BOTH:
                alpha, beta = WITH_BOTH[name]
                given = (alphas.pop(0) if alphas else alpha, betas.pop(0) if betas else beta)
                made.append(Activation(name, *given))
            else:
                raise Refusal(f"its activation {name!r} is not known")
        return made


def activated(emit: Emit, cell: Cell, x: str, which: int) -> str:
    """Return an activation of a gate, clipped before."""
    if cell.clip:
        x = emit.clipped(x, -cell.clip, cell.clip)
    return applied(emit, cell, x, which)


def applied(emit: Emit, cell: Cell, x: str, which: int) -> str:
    """Return an activation of a tensor."""
    chosen = cell.activations[which]
    if chosen.name in PLAIN:
        return emit(PLAIN[chosen.name], x)
    if chosen.name in WITH_ALPHA:
        op = {"leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "elu": "Elu"}[chosen.name]
        return emit(op, x, alpha=chosen.alpha)
    if chosen.name == "hardsigmoid":
        return emit("HardSigmoid", x, alpha=chosen.alpha, beta=chosen.beta)
    alpha, beta = (emit.number(value, cell.recurrent) for value in (chosen.alpha, chosen.beta))
    if chosen.name == "affine":
        return emit("Add", emit("Mul", x, alpha), beta)
    return emit("Mul", emit("Tanh", emit("Mul", x, beta)), alpha)


def rnn_step(emit: Emit, cell: Cell, step: str, hidden: str, memory: str) -> tuple[str, str]:
    """Return the state after one step of an RNN."""
    return activated(emit, cell, emit("Add", step, emit("MatMul", hidden, cell.recurrent)), 0), ""


def gru_step(emit: Emit, cell: Cell, step: str, hidden: str, memory: str) -> tuple[str, str]:
    """Return the state after one step of a GRU, gates z, r, h."""
    size = cell.state
    if cell.bias:
        product = emit("Add", emit("MatMul", hidden, cell.recurrent), cell.bias)
        of_state = emit.split(product, [2 * size, size], axis=1)
        gates, new = emit.split(step, [2 * size, size], axis=1)
        both = activated(emit, cell, emit("Add", gates, of_state[0]), 0)
        update, reset = emit.split(both, [size, size], axis=1)
        inner = emit("Add", new, emit("Mul", reset, of_state[1]))
    else:
        of_gates, of_new = emit.split(cell.recurrent, [2 * size, size], axis=1)
        gates, new = emit.split(step, [2 * size, size], axis=1)
        both = activated(emit, cell, emit("Add", gates, emit("MatMul", hidden, of_gates)), 0)
        update, reset = emit.split(both, [size, size], axis=1)
        inner = emit("Add", new, emit("MatMul", emit("Mul", reset, hidden), of_new))
    candidate = activated(emit, cell, inner, 1)
    kept = emit("Sub", emit.number(1, cell.recurrent), update)
    return emit("Add", emit("Mul", kept, candidate), emit("Mul", update, hidden)), ""


def lstm_step(emit: Emit, cell: Cell, step: str, hidden: str, memory: str) -> tuple[str, str]:
    """Return state and memory after one step of an LSTM, gates i, o, f, c."""
    size = cell.state
    whole = emit("Add", step, emit("MatMul", hidden, cell.recurrent))
    parts = emit.split(whole, [size] * 4, axis=1)
    opens, shows, forgets = (activated(emit, cell, part, 0) for part in parts[:3])
    candidate = activated(emit, cell, parts[3], 1)
    memory = emit("Add", emit("Mul", forgets, memory), emit("Mul", opens, candidate))
    return emit("Mul", shows, applied(emit, cell, memory, 2)), memory
