"""Gate A0, the torch side: transformers' own classes on the merged model, and torch autograd through the adapter.

Both are computed twice, in float32 and in float64. float64 is the reference, so that torch's own rounding is not
charged to MLX; what float32 differs from it by is the floor of the comparison.
Adapters are written here a second time (`torch_adapters`), with the norms of the built W + s Δ, so that the two sides
do not share the trainer's algebra.

Legend: `T` tokens, `V` vocabulary, `H` hidden width, `P` shared prefix tokens, `r` rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.gate_request import BACKWARD, FORWARD, TRACE, GateRequest
from parity.runners.plain import plain_directory


def answer(request: dict[str, Any]) -> None:
    """Write an npz with the keys of `mlx_gate.answer` under `fp32/` and `fp64/`, both rounded to float32.

    Embedding gradients are by whole rows, [T, H]. A trace has `fp64/trace/row{i}/hidden{k}` and `…/grad{k}` [T, H] too:
    each hidden state of the backward rows and the loss's gradient there. `facts` is JSON.
    """
    import numpy as np
    import torch

    asked = GateRequest.of(request)
    torch.set_grad_enabled(True)
    torch.set_float32_matmul_precision("highest")
    arrays: dict[str, Any] = {"facts": np.array(json.dumps(_facts()))}
    with plain_directory(Path(asked.base)) as base:
        for name in ("fp64",) if list(asked.parts) == [TRACE] else ("fp32", "fp64"):
            found: dict[str, Any] = {}
            with _arithmetic(name) as dtype:
                if FORWARD in asked.parts:
                    found |= _forward(load(asked.merged, dtype), asked)
                if BACKWARD in asked.parts or TRACE in asked.parts:
                    found |= _backward(load(str(base), dtype), asked)
            arrays |= {f"{name}/{key}": value for key, value in found.items()}
    np.savez(asked.out, **arrays)


@contextmanager
def _arithmetic(name: str) -> Iterator[Any]:
    import torch

    from parity.runners.torch_float64 import widened

    if name == "fp32":
        yield torch.float32
        return
    with widened():
        yield torch.float64


def _facts() -> dict[str, Any]:
    """Return what products of float32 matrices are made of here."""
    import torch

    return {
        "device": "cpu",
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
    }


def load(folder: str, dtype: Any) -> Any:
    """Return the eager model of a directory in a dtype, frozen.

    Raises:
        StageError: keys are missing or unexpected.
    """
    from transformers import AutoModelForCausalLM

    from weights_bridge.errors import all_at_once
    from weights_bridge.model_folder import open_model_folder

    open_model_folder(Path(folder)).check_tensors()  # a damaged file is one line here, a traceback there
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True, local_files_only=True
    )
    model, info = loaded
    if faults := [f"{kind.replace('_', ' ')}: {key}" for kind, keys in info.items() for key in keys]:
        raise all_at_once(f"{folder}: transformers does not load it cleanly:", faults, hint="bridge the run again")
    return model.eval().requires_grad_(False)


def _forward(model: Any, asked: GateRequest) -> dict[str, Any]:
    import torch

    arrays: dict[str, Any] = {}
    with torch.no_grad():
        for index, row in enumerate(asked.rows):
            with _watched(model) as states:
                kept = torch.tensor(asked.positions(row))
                logits = model(torch.tensor([row["ids"]]), use_cache=False, logits_to_keep=kept).logits[0]
            arrays[f"row{index}/logits"] = _fp32(logits)
            arrays |= {f"row{index}/hidden{k}": _fp32(hidden[0]) for k, hidden in enumerate(states)}
    return arrays


@contextmanager
def _watched(model: Any) -> Iterator[list[Any]]:
    """Collect the hidden states [1, T, H] of a pass: what the first layer is given, then what each layer returns."""
    states: list[Any] = []

    def given(module: Any, inputs: Any, kwargs: dict[str, Any]) -> None:
        states.append(inputs[0] if inputs else kwargs["hidden_states"])

    def returned(module: Any, inputs: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    layers = model.model.layers
    hooks = [layers[0].register_forward_pre_hook(given, with_kwargs=True)]
    hooks += [layer.register_forward_hook(returned) for layer in layers]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def _backward(model: Any, asked: GateRequest) -> dict[str, Any]:
    import torch

    from parity.runners.torch_adapters import attach
    from weights_bridge.adapter_file import read_adapter

    parameters = attach(model, read_adapter(Path(asked.adapter)), asked.norm)
    traced = TRACE in asked.parts and model.dtype == torch.float64
    total = sum(end - start for row in asked.backward_rows for start, end in row["trained"])
    loss_sum = 0.0
    arrays: dict[str, Any] = {}
    for index, row in enumerate(asked.backward_rows):  # one by one, unpadded: the plainest form of the same loss
        ids = torch.tensor([row["ids"]])
        embeddings = model.get_input_embeddings()(ids)
        embeddings = embeddings if embeddings.requires_grad else embeddings.detach().requires_grad_(True)
        embeddings.retain_grad()  # with all weights trained it is no leaf, and the table has a gradient of its own
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        kept = torch.tensor([t - 1 for t in targets])
        with _watched(model) as states:
            logits = model(inputs_embeds=embeddings, use_cache=False, logits_to_keep=kept).logits[0]
        if traced:
            for hidden in states:
                hidden.retain_grad()
        # in float64 from the logits on, in both: torch's own float32 sum over 262,144 ids leaves 77 dB of gradients
        loss = torch.nn.functional.cross_entropy(logits.double(), ids[0, targets], reduction="sum") / total
        loss.backward()
        loss_sum += float(loss.detach())
        arrays[f"grad/embeddings/row{index}"] = _fp32(embeddings.grad[0])
        if traced:
            arrays |= {f"trace/row{index}/hidden{k}": _fp32(hidden[0]) for k, hidden in enumerate(states)}
            arrays |= {f"trace/row{index}/grad{k}": _fp32(hidden.grad[0]) for k, hidden in enumerate(states)}
    arrays |= {f"grad/{name}": _fp32(parameter.grad) for name, parameter in parameters.items()}
    arrays["loss"] = _fp32(torch.tensor(loss_sum, dtype=torch.float64))
    return arrays


def _fp32(tensor: Any) -> Any:
    import numpy as np

    return tensor.detach().numpy().astype(np.float32)
