"""Gate A0, the torch side: transformers' own classes on the merged model, and torch autograd through the adapter.

The forward pass is fp32, as what is shipped. The backward reference is float64, so that its own rounding is not
charged to MLX.
Adapters are written here a second time (`torch_adapters`), with the norms of the built W + s Δ, so that the two sides
do not share the trainer's algebra.

Legend: `T` tokens, `V` vocabulary, `H` hidden width, `P` shared prefix tokens, `r` rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parity.gate_request import GateRequest


def answer(request: dict[str, Any]) -> None:
    """Write an npz with the keys of `mlx_gate.answer`; embedding gradients by whole rows, [T, H]."""
    import numpy as np
    import torch

    asked = GateRequest.of(request)
    torch.set_grad_enabled(True)
    arrays = _forward(load(asked.merged, torch.float32), asked)
    arrays |= _backward(load(asked.base, torch.float64), asked)
    np.savez(asked.out, **arrays)


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
            outputs: list[Any] = []
            hooks = [layer.register_forward_hook(_keep(outputs)) for layer in model.model.layers]
            hooks.append(model.model.layers[0].register_forward_pre_hook(_keep_input(arrays, index), with_kwargs=True))
            logits = model(torch.tensor([row["ids"]]), use_cache=False).logits[0]
            for hook in hooks:
                hook.remove()
            arrays[f"row{index}/logits"] = logits[asked.positions(row)].numpy()
            for k, hidden in enumerate(outputs, 1):
                arrays[f"row{index}/hidden{k}"] = hidden[0].numpy()
    return arrays


def _keep(outputs: list[Any]) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    return hook


def _keep_input(arrays: dict[str, Any], index: int) -> Any:
    def hook(module: Any, inputs: Any, kwargs: dict[str, Any]) -> None:
        hidden = inputs[0] if inputs else kwargs["hidden_states"]
        arrays[f"row{index}/hidden0"] = hidden[0].numpy()

    return hook


def _backward(model: Any, asked: GateRequest) -> dict[str, Any]:
    import torch

    from parity.runners.torch_adapters import attach
    from weights_bridge.adapter_file import read_adapter

    parameters = attach(model, read_adapter(Path(asked.adapter)))
    total = sum(end - start for row in asked.backward_rows for start, end in row["trained"])
    loss_sum = 0.0
    arrays: dict[str, Any] = {}
    for index, row in enumerate(asked.backward_rows):  # one by one, unpadded: the plainest form of the same loss
        ids = torch.tensor([row["ids"]])
        embeddings = model.get_input_embeddings()(ids)
        embeddings = embeddings if embeddings.requires_grad else embeddings.detach().requires_grad_(True)
        embeddings.retain_grad()  # with all weights trained it is no leaf, and the table has a gradient of its own
        logits = model(inputs_embeds=embeddings, use_cache=False).logits[0]
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        labels = ids[0, targets]
        loss = torch.nn.functional.cross_entropy(logits[[t - 1 for t in targets]], labels, reduction="sum") / total
        loss.backward()
        loss_sum += float(loss.detach())
        assert embeddings.grad is not None
        arrays[f"grad/embeddings/row{index}"] = embeddings.grad[0].float().numpy()
    arrays |= {f"grad/{name}": p.grad.float().numpy() for name, p in parameters.items()}
    arrays["loss"] = torch.tensor(loss_sum, dtype=torch.float32).numpy()
    return arrays
