"""A plain torch loop of the same step: transformers' model, LoRA beside each Linear, logits at every token."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from benchmarks.contenders.timing import timed_with_cores
from benchmarks.contenders.training import ADAPTER, LEARNING_RATE, Task, figures, read_task
from benchmarks.turns import Turn

PRODUCTS = re.compile(r"^aten::(mm|bmm|addmm|baddbmm)$|scaled_dot_product")


class LoraLinear(nn.Module):
    """y = x Wᵀ + s (x Aᵀ) Bᵀ + b with W and b frozen."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        bound = linear.in_features**-0.5
        self.lora_A = nn.Parameter(torch.empty(rank, linear.in_features).uniform_(-bound, bound))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.scale * ((x @ self.lora_A.T) @ self.lora_B.T)


def measure(model: str, case: str, rows: int, runs: int, turns: str | None = None) -> dict[str, Any]:
    """Return the seconds of each counted step and what it trained; on MPS where there is one, else on the CPU.

    Args:
        model: the model directory.
        case: which rows.
        rows: in the batch.
        runs: counted steps after one warm-up.
        turns: the folder of its `Turn`, where contenders take turns.
    """
    task = read_task(model, case, rows)
    device = "mps" if torch.backends.mps.is_available() else "cpu"
    torch.manual_seed(0)
    network: Any = AutoModelForCausalLM.from_pretrained(task.folder.path, dtype=torch.float32)
    network.requires_grad_(False)
    for name in task.folder.architecture.linear_modules(task.folder.config):
        adapted = LoraLinear(network.get_submodule(name), ADAPTER.rank, ADAPTER.alpha / ADAPTER.rank)
        network.set_submodule(name, adapted)
    network.to(device).train()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, LEARNING_RATE)
    ids, at, labels = (tensor.to(device) for tensor in batch_of(task))

    losses: list[float] = []

    def step() -> None:
        logits = network(input_ids=ids, use_cache=False).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1)[at], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "mps":
            torch.mps.synchronize()
        losses.append(float(loss.detach()))

    seconds, core_seconds = timed_with_cores(step, runs, Turn(turns, gc.collect))
    share = elementwise_share(step) if device == "cpu" else None
    return {"elementwise_share": share} | figures(
        seconds,
        core_seconds=core_seconds,
        losses=losses[: runs + 1],
        computed_tokens=ids.numel(),
        head_tokens=ids.numel(),
        attention_pairs=ids.numel() * ids.shape[1],
        task=task,
        parameters=sum(parameter.numel() for parameter in trained),
        device=device,
    )


def elementwise_share(step: Callable[[], None]) -> float:
    """Return which share of a step's operator time is spent outside of matrix products and attention kernels.

    Args:
        step: it is run once more, under torch's profiler.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    spent = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    operators = {name: time for name, time in spent.items() if name.startswith("aten::")}
    products = sum(time for name, time in operators.items() if PRODUCTS.search(name))
    return round(1 - products / sum(operators.values()), 3)


def batch_of(task: Task) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids [B, S], the flat positions [N] that predict a label, and the labels [N]."""
    width = task.padded_width()
    ids = torch.full((len(task.rows), width), task.pad_id)
    at, labels = [], []
    for index, row in enumerate(task.rows):
        ids[index, : len(row["ids"])] = torch.tensor(row["ids"])
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        at += [index * width + t - 1 for t in targets]
        labels += [row["ids"][t] for t in targets]
    return ids, torch.tensor(at), torch.tensor(labels)
