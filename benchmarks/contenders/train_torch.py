"""A plain torch loop of the same step: transformers' model, LoRA beside each Linear, logits at every token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from benchmarks.contenders.timing import timed_with_cores
from benchmarks.contenders.training import ADAPTER, LEARNING_RATE, figures, read_task
from benchmarks.turns import Turn, give_back

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


PASS_ROWS = 4  # 16 rows of SmolLM2 at once take more than 24 GiB


def measure(
    model: str, case: str, rows: int, runs: int, turns: str | None = None, pass_rows: int = PASS_ROWS
) -> dict[str, Any]:
    """Return the seconds of each counted step and what it trained; on MPS where there is one, else on the CPU.

    Args:
        model: the model directory.
        case: which rows.
        rows: in the batch.
        runs: counted steps after one warm-up.
        turns: the folder of its `Turn`, where contenders take turns.
        pass_rows: rows that go through the model at once; gradients of a step's passes are added up.
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
    width, total = task.padded_width(), task.trained_tokens()
    parts = [task.rows[start : start + pass_rows] for start in range(0, rows, pass_rows)]
    passes = [[tensor.to(device) for tensor in batch_of(part, width, task.pad_id)] for part in parts]

    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = 0.0
        for ids, at, labels in passes:
            logits = network(input_ids=ids, use_cache=False).logits
            part = nn.functional.cross_entropy(logits.flatten(0, 1)[at], labels, reduction="sum") / total
            part.backward()
            loss += float(part.detach())
        optimizer.step()
        if device == "mps":
            torch.mps.synchronize()
        losses.append(loss)

    seconds, core_seconds = timed_with_cores(step, runs, Turn(turns, give_back))
    share = elementwise_share(step) if device == "cpu" else None
    return {"elementwise_share": share} | figures(
        seconds,
        core_seconds=core_seconds,
        losses=losses[: runs + 1],
        computed_tokens=rows * width,
        head_tokens=rows * width,
        attention_pairs=rows * width * width,
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


def batch_of(rows: list[dict[str, Any]], width: int, pad_id: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids [B, S], the flat positions [N] that predict a label, and the labels [N].

    Args:
        rows: prepared rows.
        width: S.
        pad_id: the padding token.
    """
    ids = torch.full((len(rows), width), pad_id)
    at, labels = [], []
    for index, row in enumerate(rows):
        ids[index, : len(row["ids"])] = torch.tensor(row["ids"])
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        at += [index * width + t - 1 for t in targets]
        labels += [row["ids"][t] for t in targets]
    return ids, torch.tensor(at), torch.tensor(labels)
