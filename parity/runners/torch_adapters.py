"""Adapters in torch, written from the papers' formulas and not from the trainer: V = W + s Δ is built where a norm is.

Legend: `out`, `in` the sides of W, `r` rank, s the scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weights_bridge.adapter_file import Adapter


def attach(model: Any, adapter: Adapter, norm: str | None = None) -> dict[str, Any]:
    """Put an adapter beside a frozen model's Linears, or a full fine-tune's weights in their place.

    Args:
        model: transformers' model, every parameter frozen, in the dtype to compute in.
        adapter: what was trained.
        norm: `detached` or `attached` in place of what the adapter's file says; None as the file says.

    Returns:
        Name to parameter of everything that was trained.
    """
    import torch

    if adapter.is_full:
        return _with_all_weights(model, adapter)
    parameters = {}
    for name, array in adapter.saved.items():
        with torch.no_grad():
            model.get_parameter(name).copy_(torch.from_numpy(array))
    attached = (norm or norm_of(adapter)) == "attached"
    for module, parts in adapter.modules.items():
        adapted = _adapted(model.get_submodule(module), parts, adapter, module, attached)
        model.set_submodule(module, adapted)
        trained = {name: p for name, p in adapted.named_parameters(recurse=False) if p.requires_grad}
        parameters |= {f"{module}.{name}": p for name, p in trained.items()}
    return parameters


def norm_of(adapter: Adapter) -> str | None:
    """Return whether gradients flow through an adapter's norms, as its file says: `detached` or `attached`.

    None where there are no norms.
    """
    return None if adapter.is_full or not adapter.kind.has_norm else adapter.facts.get("norm", "detached")


def _with_all_weights(model: Any, adapter: Adapter) -> dict[str, Any]:
    import torch

    parameters = dict(model.named_parameters())  # a tied head is one parameter, under the embedding's name
    model.get_input_embeddings().padding_idx = None  # torch would drop the gradient of that row, which rows may hold
    for name, array in adapter.flat().items():
        with torch.no_grad():
            parameters[name].copy_(torch.from_numpy(array))
        parameters[name].requires_grad_(True)
    return {name: parameters[name] for name in adapter.flat()}


def _adapted(linear: Any, parts: Mapping[str, Any], adapter: Adapter, module: str, attached: bool) -> Any:
    import torch
    import torch.utils.checkpoint

    kind, scale = adapter.kind, adapter.scale_of(module)

    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear
            for name, array in parts.items():
                tensor = torch.from_numpy(array).to(linear.weight.dtype)
                self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=name not in ("U", "V")))

        def change(self) -> Any:
            own = dict(self.named_parameters(recurse=False))
            if kind.fixed_bases:
                return torch.einsum("or,rk,ik->oi", own["U"], own["M_xs"], own["V"])
            return own["lora_B"] @ own["lora_A"]

        def weight(self) -> Any:
            """Return the effective weight, built; a norm that is detached is a constant of the graph."""
            own = dict(self.named_parameters(recurse=False))
            built = self.linear.weight + scale * self.change()
            if kind.rows:
                norm = torch.linalg.vector_norm(built, dim=1, keepdim=True)
                built = own[kind.row_magnitude].unsqueeze(1) * built / (norm if attached else norm.detach())
            if kind.columns:
                norm = torch.linalg.vector_norm(built, dim=0, keepdim=True)
                built = built * (own[kind.column_magnitude] / (norm if attached else norm.detach()))
            return built

        def forward(self, x: Any) -> Any:
            if torch.is_grad_enabled():  # the built weight is made again in the backward pass: one layer's at a time
                return torch.utils.checkpoint.checkpoint(self._applied, x, use_reentrant=False)
            return self._applied(x)

        def _applied(self, x: Any) -> Any:
            return torch.nn.functional.linear(x, self.weight(), self.linear.bias)

    return Adapted()
