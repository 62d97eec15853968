"""Gate A0, the MLX side: what the trainer itself computes for the fixture rows.

Legend: `T` tokens, `V` vocabulary, `H` hidden width, `P` shared prefix tokens.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from parity.gate_request import BACKWARD, FORWARD, GateRequest

TF32 = "MLX_ENABLE_TF32"  # MLX's own switch, on by default where a GPU has such units


def answer(request: dict[str, Any]) -> None:
    """Write an npz with logits, hidden states by layer, the loss and its gradients.

    Keys: `row{i}/logits` [positions, V], `row{i}/hidden{k}` [T, H] (k = 0 the embeddings, k = n the output of layer
    n − 1), `loss` [], `grad/<adapter tensor>`, `grad/embeddings/prefix` [P, H], `grad/embeddings/row{i}` [T − P, H],
    `facts` as JSON.
    """
    import numpy as np

    asked = GateRequest.of(request)
    model = load(asked)
    np.savez(asked.out, facts=np.array(json.dumps(facts())), **measured(model, asked))


def load(asked: GateRequest) -> Any:
    """Return the base model with the adapter on it, as it was trained."""
    os.environ[TF32] = "0"  # fp32 is what is measured; MLX reads this before its first product
    from mlx_sentis.training import definitions
    from parity.runners.mlx_decoder import put_on_adapter
    from weights_bridge.model_folder import open_model_folder

    model = definitions.load_causal_lm(open_model_folder(Path(asked.base)))
    put_on_adapter(model, Path(asked.adapter))
    return model


def facts() -> dict[str, Any]:
    """Return what products of float32 matrices are made of here."""
    import mlx.core as mx

    return {"device": str(mx.default_device()), "tf32": os.environ[TF32] != "0"}


def measured(model: Any, asked: GateRequest) -> dict[str, Any]:
    """Return the arrays of the parts that are asked for."""
    arrays = _forward(model, asked) if FORWARD in asked.parts else {}
    return arrays | (_backward(model, asked) if BACKWARD in asked.parts else {})


class _Recording:
    """A layer that keeps what it returned."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.output: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.output = self._layer(*args, **kwargs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def _forward(model: Any, asked: GateRequest) -> dict[str, Any]:
    import mlx.core as mx
    import numpy as np

    arrays: dict[str, Any] = {}
    inner = model.network.model
    layers = inner.layers
    for index, row in enumerate(asked.rows):
        recorders = [_Recording(layer) for layer in layers]
        inner.layers = recorders
        ids = mx.array([row["ids"]])
        embeddings = model.embed(ids)
        logits = model.logits(model.hidden(embeddings)[0, mx.array(asked.positions(row))])
        inner.layers = layers
        arrays[f"row{index}/logits"] = np.array(logits)
        arrays[f"row{index}/hidden0"] = np.array(embeddings[0] * model.inner_scale)
        for k, recorder in enumerate(recorders, 1):
            arrays[f"row{index}/hidden{k}"] = np.array(recorder.output[0])
    return arrays


def _backward(model: Any, asked: GateRequest) -> dict[str, Any]:
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten

    from mlx_sentis.training.batches import make_batch
    from mlx_sentis.training.sharing import shared_prefix_tokens
    from mlx_sentis.training.step import arrays_of, loss_of_embeddings

    shared = shared_prefix_tokens(asked.backward_rows) if len(asked.backward_rows) > 1 else 0
    arrays_in = arrays_of(make_batch(asked.backward_rows, shared, asked.pad_id))  # the prefix, then all rows

    def loss_of(parameters: Any, shifts: list[mx.array]) -> mx.array:
        model.network.update(parameters)
        embeddings = [model.embed(ids) + shift for ids, shift in zip(arrays_in[1], shifts, strict=True)]
        return loss_of_embeddings(model, embeddings, arrays_in)

    # zeros are added to the embeddings, so that these have a gradient and a table that is trained has its whole own
    trained, shifts = model.network.trainable_parameters(), [mx.zeros_like(model.embed(ids)) for ids in arrays_in[1]]
    loss, gradients = mx.value_and_grad(loss_of, argnums=(0, 1))(trained, shifts)
    names = model.folder.architecture.torch_from_mlx(model.folder.config)  # of weights; adapters have torch's already
    arrays = {f"grad/{names.get(name, name)}": np.array(array) for name, array in tree_flatten(gradients[0])}
    arrays["loss"] = np.array(loss)
    factor = np.float32(1 / model.inner_scale)  # compared where torch's first layer sees them: after the scale
    if shared:
        arrays["grad/embeddings/prefix"] = np.array(gradients[1][0][0]) * factor
    rows = np.array(gradients[1][-1]) * factor
    for index, row in enumerate(asked.backward_rows):
        tail = np.zeros((len(row["ids"]) - shared, rows.shape[2]), np.float32)  # what nobody reads is not computed
        read = min(len(tail), rows.shape[1])
        tail[:read] = rows[index, :read]
        arrays[f"grad/embeddings/row{index}"] = tail
    return arrays
