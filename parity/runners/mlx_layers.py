"""Gate A0 after a miss, the MLX side: each layer alone, fed with torch's own activations.

A layer that is given exactly what torch's layer was given, and puts out something else, is where the miss begins;
one that only passes on what came wrong is not. Backward the same: each layer gets torch's activations and torch's
gradient at its output, and what it makes of them is its own.

Legend: `T` tokens, `V` vocabulary, `H` hidden width, `n` layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parity.gate_request import FORWARD, GateRequest


def answer(request: dict[str, Any]) -> None:
    """Write an npz of what each layer makes of what `given` holds.

    Forward: reads `row{i}/hidden{k}` [T, H], k = 0 … n; writes `row{i}/hidden{k}` for k ≥ 1, computed by layer k − 1
    of the given hidden state k − 1, `row{i}/hidden0` of the ids, and `row{i}/logits` from the given last one.
    Backward: reads `trace/row{i}/hidden{k}` and `trace/row{i}/grad{k}`; writes `row{i}/grad{k}` [T, H], for k < n
    by layer k alone, for k = n by the head, and `grad/<adapter tensor>` by its layer alone.
    """
    import numpy as np

    from parity.runners import mlx_gate

    asked = GateRequest.of(request)
    model = mlx_gate.load(asked)
    with np.load(asked.given) as npz:
        given = {name: npz[name] for name in npz.files}
    np.savez(asked.out, **(forward(model, asked, given) if FORWARD in asked.parts else backward(model, asked, given)))


class _Fed:
    """A layer that computes from what it is given, and hands on what torch's layer put out.

    Args:
        layer: MLX's.
        given: [1, T, H], torch's hidden state before it.
        following: [1, T, H], torch's hidden state behind it.
    """

    def __init__(self, layer: Any, given: Any, following: Any) -> None:
        self._layer, self._given, self._following = layer, given, following
        self.output: Any = None

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self.output = self._layer(self._given, *args, **kwargs)
        return self._following

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


@contextmanager
def fed(model: Any, states: list[Any]) -> Iterator[list[_Fed]]:
    """Let each layer compute from its own given hidden state; masks stay the definition's own."""
    inner, layers = model.network.model, model.layers
    inner.layers = [_Fed(layer, *states[k : k + 2]) for k, layer in enumerate(layers)]
    try:
        yield inner.layers
    finally:
        inner.layers = layers


def forward(model: Any, asked: GateRequest, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of the forward rows, see `answer`."""
    import mlx.core as mx
    import numpy as np

    arrays: dict[str, Any] = {}
    for index, row in enumerate(asked.rows):
        states = [mx.array(given[f"row{index}/hidden{k}"])[None] for k in range(len(model.layers) + 1)]
        embeddings = model.embed(mx.array([row["ids"]]))
        with fed(model, states) as layers:
            final = model.hidden(embeddings)
        arrays[f"row{index}/hidden0"] = np.array(embeddings[0] * model.inner_scale)
        for k, layer in enumerate(layers, 1):
            arrays[f"row{index}/hidden{k}"] = np.array(layer.output[0])
        arrays[f"row{index}/logits"] = np.array(model.logits(final[0, mx.array(asked.positions(row))]))
    return arrays


def backward(model: Any, asked: GateRequest, given: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients of each layer alone, see `answer`.

    One sum has them all: Σ_k layer_k(x_k) · g_k+1 + loss(x_n). Every x_k is a constant to the others, so that its
    gradient and those of layer k's tensors come from that layer's term only.
    """
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten

    from mlx_sentis.training.head import head_loss_sum

    total = sum(end - start for row in asked.backward_rows for start, end in row["trained"])
    names = model.folder.architecture.torch_from_mlx(model.folder.config)
    arrays: dict[str, Any] = {}
    for index, row in enumerate(asked.backward_rows):
        key = f"trace/row{index}"
        places = range(len(model.layers) + 1)
        states, gradients = ([mx.array(given[f"{key}/{what}{k}"])[None] for k in places] for what in ("hidden", "grad"))
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        labels, read = mx.array([row["ids"][t] for t in targets]), mx.array([t - 1 for t in targets])

        def of_all(
            parameters: Any, states: Any, gradients: Any = gradients, labels: Any = labels, read: Any = read
        ) -> Any:
            model.network.update(parameters)
            with fed(model, states) as layers:
                final = model.hidden(states[0])
            terms = [mx.sum(layer.output * g) for layer, g in zip(layers, gradients[1:], strict=True)]
            return sum(terms, head_loss_sum(model, final[0, read], labels, mx.ones(labels.shape)) / total)

        trained = model.network.trainable_parameters()
        of_tensors, of_states = mx.grad(of_all, argnums=(0, 1))(trained, states)
        for name, array in tree_flatten(of_tensors):
            full = f"grad/{names.get(name, name)}"
            arrays[full] = arrays.get(full, 0.0) + np.array(array)
        arrays |= {f"row{index}/grad{k}": np.array(array[0]) for k, array in enumerate(of_states)}
    return arrays
