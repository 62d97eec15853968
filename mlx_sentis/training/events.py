"""Typed events of a training run: the loop says what happened, sinks (`sinks.py`) decide what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Started:
    """Before the first update."""

    seed: int
    trained_modules: int
    trained_parameters: int
    rows: int
    prefix_tokens: int
    updates: int


@dataclass(frozen=True)
class Resumed:
    """After `Started`: the run goes on from a state; what a log says of later updates is void."""

    step: int
    epoch: int
    updates: int


@dataclass(frozen=True)
class EpochStarted:
    """`batches` are the epoch's updates, `done` of them lie before a resume."""

    epoch: int
    step: int
    batches: int
    done: int = 0


@dataclass(frozen=True)
class StepDone:
    """After one update.

    Attributes:
        lr: the rate of the next update, as the dashboard's torch loop prints it.
        trained_tokens: labelled ones.
        real_tokens: of all rows, without padding; shared ones count in every row.
        computed_tokens: that went through the layers, padding included.
        trained_per_second, real_per_second, computed_per_second: the same in this update's time.
        peak_memory_gib: MLX's peak of this process so far.
        seconds_left: to the end of the run, at the pace of the last updates.
    """

    step: int
    epoch: int
    loss: float
    lr: float
    grad_norm: float
    lora_magnitude: float
    trained_tokens: int
    seconds: float
    real_tokens: int = 0
    computed_tokens: int = 0
    trained_per_second: float = 0.0
    real_per_second: float = 0.0
    computed_per_second: float = 0.0
    peak_memory_gib: float = 0.0
    seconds_left: float = 0.0


@dataclass(frozen=True)
class EpochDone:
    epoch: int
    step: int
    valid_loss: float | None


@dataclass(frozen=True)
class Saved:
    step: int
    epoch: int
    name: str
    final: bool


@dataclass(frozen=True)
class Stopped:
    """Training could not go on; `step` is the update that failed."""

    step: int
    epoch: int
    reason: str


@dataclass(frozen=True)
class Interrupted:
    """A signal ended training after update `step`, which is saved."""

    step: int
    epoch: int
    signal: str


@dataclass(frozen=True)
class Finished:
    """`reason` says why before the last epoch, when it was."""

    step: int
    seconds: float
    best_step: int
    reason: str = ""


Event = Started | Resumed | EpochStarted | StepDone | EpochDone | Saved | Stopped | Interrupted | Finished
ENDS = (Stopped, Interrupted, Finished)


class Sink(Protocol):
    """Something that receives events."""

    def receive(self, event: Event) -> None: ...
