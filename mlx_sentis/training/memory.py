"""Memory: an estimate before start, limits, and words for when it runs out.

Peaks are MLX's own count of its arrays (`mx.get_peak_memory`), which works alike on Metal and on the CPU.

Legend: `T` tokens that go through the layers, `H` hidden width, `L` layers, `N` labelled positions, `V` vocabulary.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from mlx_sentis.training.adapters import adapted_modules
from mlx_sentis.training.batches import Batch
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.head import CHUNK
from weights_bridge.errors import StageError, counted
from weights_bridge.settings import TrainSettings

GIB = 2**30
FLOAT = 4  # bytes; everything is trained in fp32
OUT_OF_MEMORY = re.compile(r"allocat|out of memory|OutOfMemory|insufficient memory|bad_alloc", re.IGNORECASE)
# arrays of a trained tensor's size while an update runs: gradient, the optimiser's moments old and new, new value
COPIES = {"adamw": 6, "adam": 6, "sgd": 4, "lion": 4, "muon": 4, "adafactor": 2}


class OutOfMemoryError(StageError):
    """An update needs more memory than there is, or than the user allows."""


def set_limits(settings: TrainSettings) -> list[str]:
    """Hand the limits to MLX where it takes them, and return what was set, in words.

    On Metal the memory limit is a guideline to the allocator and the wired limit keeps the model resident; the CPU
    backend takes the same calls without effect, so the loop checks the peak itself (`require_within`).
    """
    said = []
    if settings.memory_limit_gib:
        mx.set_memory_limit(int(settings.memory_limit_gib * GIB))
        said.append(f"memory limit {settings.memory_limit_gib:g} GiB")
    if settings.cache_limit_gib:
        mx.set_cache_limit(int(settings.cache_limit_gib * GIB))
        said.append(f"cache limit {settings.cache_limit_gib:g} GiB")
    if mx.metal.is_available():
        recommended = int(mx.device_info()["max_recommended_working_set_size"])
        limit = min(recommended, int(settings.memory_limit_gib * GIB) or recommended)
        mx.set_wired_limit(limit)
        said.append(f"wired limit {limit / GIB:.1f} GiB")
    return said


def machine_gib() -> float:
    """Return what the machine has for us, GiB: Metal's recommended working set, else physical memory."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"]) / GIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


@dataclass(frozen=True)
class Estimate:
    """What the largest update should need at its peak, bytes."""

    weights: int
    trained: int
    activations: int
    head: int

    @property
    def gib(self) -> float:
        return (self.weights + self.trained + self.activations + self.head) / GIB

    def __str__(self) -> str:
        parts = {"weights": self.weights, "gradients and optimiser": self.trained}
        parts |= {"activations": self.activations, "head": self.head}
        return f"{self.gib:.3g} GiB (" + ", ".join(f"{name} {size / GIB:.2g}" for name, size in parts.items()) + ")"


def estimate(model: CausalLM, batch: Batch, settings: TrainSettings) -> Estimate:
    """Estimate the peak of one update over a micro-batch.

    Activations of a layer: per token 5 arrays of the hidden width, 2.5 of queries, keys and values, 5 of the
    feed-forward width, and 0.8 of all pairs of query and key per head (MLX has no fused attention backward). These
    four were fitted on seven random Llama shapes with LoRA on every Linear (hidden 128 and 256, feed-forward 128 to
    1024, 64 to 464 tokens; CPU, MLX 0.32.4), worst 7 % off. Kinds with a magnitude per row keep what they scale, too,
    as wide as each layer's output (measured 1.0 to 1.2 times that). With activation checkpoints each layer keeps its
    input, keys and values, and one layer at a time is computed again (twice a layer at its peak).

    Args:
        model: trainable as the settings say.
        batch: the largest micro-batch.
        settings: `optimizer` and `checkpoint_activations`.
    """
    config = model.folder.config
    weights = _bytes_of(model.network.parameters())
    trained = _bytes_of(model.network.trainable_parameters()) * COPIES[settings.optimizer]
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    keys = config.get("num_key_value_heads", heads)
    tokens, layers = batch.computed_tokens, config["num_hidden_layers"]
    per_token = 5 * config["hidden_size"] + 2.5 * (heads + 2 * keys) * width + 5 * config["intermediate_size"]
    layer = per_token * tokens + 0.8 * heads * _pairs(batch)
    scaled = [module.matrix.out for _, module in adapted_modules(model.network) if module.kind.rows]
    layer += sum(scaled) / layers * tokens
    kept = layer * layers
    if settings.checkpoint_activations:
        kept = 2 * layer + layers * tokens * (config["hidden_size"] + 2 * keys * width)
    logits = min(len(batch.labels) * config["vocab_size"], CHUNK) * FLOAT
    return Estimate(weights, trained, int(kept) * FLOAT, 3 * logits)


def _bytes_of(tree: Any) -> int:
    arrays: list[tuple[str, mx.array]] = tree_flatten(tree)  # pyright: ignore
    return sum(array.nbytes for _, array in arrays)


def _pairs(batch: Batch) -> int:
    """Return how many (query, key) pairs the attention of one head looks at, masked ones included."""
    lengths: list[int] = []
    total = 0
    for one in batch.passes:
        rows, own = one.ids.shape
        before = lengths[one.parent] if one.parent >= 0 else 0
        lengths.append(before + own)
        total += rows * own * (before + own)
    return total


def peak_gib() -> float:
    """Return MLX's peak so far, GiB."""
    return mx.get_peak_memory() / GIB


def outlook(expected: Estimate, settings: TrainSettings) -> str:
    """Return the estimate in words, beside what there is, with a warning where it does not fit."""
    limit = settings.memory_limit_gib or machine_gib()
    whose = "the limit is" if settings.memory_limit_gib else "this machine has"
    warning = "; this will hardly fit: lower train.batch_rows" if expected.gib > limit else ""
    return f"memory: about {expected}, {whose} {limit:.3g} GiB{warning}"


def hindsight(estimated: float, measured: float) -> str:
    """Return how good the estimate was; without an update there is nothing to compare."""
    if measured == 0:
        return "memory: no update was computed"
    return f"memory: estimated {estimated:.3g} GiB, measured {measured:.3g} GiB ({estimated / measured - 1:+.0%})"


def above_limit(settings: TrainSettings, peak: float) -> str:
    """Return what to say of a peak (GiB) above the user's limit, on every backend alike; empty within it."""
    limit = settings.memory_limit_gib
    return f"needs {peak:.3g} GiB, the limit is {limit:g} GiB" if 0 < limit < peak else ""


def out_of_memory(update: int, batches: list[Batch], tokens: dict[str, int], what: str, kept: str) -> OutOfMemoryError:
    """Return the error that names the longest row of an update, and how to mend it.

    Args:
        update: its number.
        batches: its micro-batches.
        tokens: row id to its length.
        what: what memory said.
        kept: what is saved, in words.
    """
    widest = max(batches, key=lambda batch: batch.computed_tokens)
    longest = max(widest.names, key=lambda name: tokens.get(name, 0))
    count = len(widest.names)
    alone = f"in a batch of {counted(count, 'row')}"
    where = f"update {update}: row {longest} ({counted(tokens.get(longest, 0), 'token')}, {alone})"
    fewer = f"--set train.batch_rows={max(1, count // 2)}, " if count > 1 else ""
    hint = f"{fewer}--set train.checkpoint_activations=true, or a smaller data.max_tokens"
    return OutOfMemoryError(f"{where} {what}; {kept}", hint=hint)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether MLX or Python could not allocate.

    `std::bad_alloc` arrives as MemoryError, Metal's refusals as RuntimeError. The CPU backend does not check every
    allocation and may die of a signal instead, which only the parent process can tell of.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))
    )
