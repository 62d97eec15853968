"""Training: epochs over the prepared rows, validation, checkpoints. The figures go to sinks as events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optimizers

from mlx_sentis.training import adapters, checkpoints, events
from mlx_sentis.training.batches import Batch, make_batch, plan_epoch, require_batch
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.sharing import Sharing, sharing_of
from mlx_sentis.training.step import StepResult, arrays_of, loss_of_batch, make_train_step, number
from weights_bridge.errors import StageError
from weights_bridge.settings import Settings, TrainSettings

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """What a training run leaves.

    Attributes:
        best_step: the update whose validation loss was lowest.
        losses: training loss of each update, nats per labelled token.
        valid_losses: validation loss after each epoch.
        prefix_tokens: how many prompt tokens were shared.
        tokens_computed: tokens that went through the model.
        tokens_plain: tokens that a padded batch without a shared prefix would have cost.
    """

    best_step: int
    losses: list[float]
    valid_losses: list[float]
    prefix_tokens: int
    tokens_computed: int
    tokens_plain: int
    seconds: float


def learning_rate_schedule(settings: TrainSettings, updates: int) -> Callable[[Any], mx.array]:
    """Return f(update) → learning rate: linear warm-up, then constant, linear or cosine to zero."""
    rate, warmup = settings.learning_rate, min(settings.warmup_updates, max(0, updates - 1))
    rest = max(1, updates - warmup)
    after = {
        "constant": lambda step: mx.array(rate),
        "linear": optimizers.linear_schedule(rate, 0.0, rest),
        "cosine": optimizers.cosine_decay(rate, rest),
    }[settings.schedule]
    if warmup == 0:
        return after
    rising = optimizers.linear_schedule(rate / (warmup + 1), rate, warmup)
    return optimizers.join_schedules([rising, after], [warmup])


def require_trainable(rows: Rows, settings: TrainSettings) -> None:
    """Refuse before anything is loaded when there is nothing to train on.

    Raises:
        StageError: no rows, rows without a label or with a label nothing precedes, or fewer rows than a batch.
    """
    if not rows:
        raise StageError("data/train.jsonl: no rows", hint="prepare a data file with at least one row")
    if empty := [row["id"] for row in rows if not row["trained"]]:
        raise StageError(f"data/train.jsonl: no trained token in {', '.join(empty[:5])}", hint="prepare the data again")
    if whole := [row["id"] for row in rows if row["trained"][0][0] < 1]:
        hint = "nothing comes before the first token that it could be predicted from"
        raise StageError(f"data/train.jsonl: the first token is trained in {', '.join(whole[:5])}", hint=hint)
    require_batch(len(rows), settings.batch_rows)


def mean_loss(model: CausalLM, batches: Sequence[Batch]) -> float:
    """Return the mean loss over the labelled tokens of some batches, nats."""
    total, tokens = 0.0, 0
    for batch in batches:
        total += number(loss_of_batch(model, arrays_of(batch))) * batch.trained_tokens
        tokens += batch.trained_tokens
    return total / tokens


class Trainer:
    """One training run.

    Args:
        model: the decoder, adapters added.
        facts: what the adapter file says of itself.
        settings: the resolved settings.
        folder: `checkpoints/` of the run.
        sinks: who hears of it.
        pad_id: the padding token.
    """

    def __init__(
        self,
        model: CausalLM,
        facts: adapters.AdapterFacts,
        settings: Settings,
        folder: Path,
        sinks: Sequence[events.Sink],
        pad_id: int,
    ) -> None:
        self.model, self.facts, self.settings = model, facts, settings.train
        self.folder, self.sinks, self.pad_id = folder, sinks, pad_id
        self.step = 0
        self.losses: list[float] = []
        self.valid_losses: list[float] = []
        self.best = (math.inf, 0)
        self.saved: int | None = None
        self.tokens_computed = self.tokens_plain = 0

    def tell(self, event: events.Event) -> None:
        for sink in self.sinks:
            sink.receive(event)

    def run(self, train: Rows, valid: Rows) -> Trained:
        """Train for `settings.train.epochs` and return what came of it."""
        started = time.monotonic()
        sharing = sharing_of(train, enabled=self.settings.share_prefix)
        updates = sum(len(plan_epoch(train, self.settings, epoch)) for epoch in range(self.settings.epochs))
        self.schedule = learning_rate_schedule(self.settings, updates)
        optimizer = optimizers.AdamW(
            self.schedule,
            betas=[0.9, 0.999],
            eps=1e-8,
            weight_decay=self.settings.weight_decay,
            bias_correction=True,  # as torch; MLX's default is off
        )
        train_step = make_train_step(self.model, optimizer, self.settings)
        self._tell_started(train, sharing.prefix_tokens, updates)
        for epoch in range(self.settings.epochs):
            self._epoch(epoch, train, sharing, train_step)
            self._end_of_epoch(epoch, valid, final=epoch + 1 == self.settings.epochs)
        seconds = time.monotonic() - started
        self.tell(events.Finished(self.step, round(seconds, 3), self.best[1]))
        counts = (sharing.prefix_tokens, self.tokens_computed, self.tokens_plain)
        return Trained(self.best[1], self.losses, self.valid_losses, *counts, seconds)

    def _tell_started(self, train: Rows, prefix: int, updates: int) -> None:
        parameters = sum(array.size for array in adapters.adapter_tensors(self.model).values())
        self.tell(events.Started(self.settings.seed, len(self.facts.targets), parameters, len(train), prefix, updates))

    def _epoch(
        self, epoch: int, train: Rows, sharing: Sharing, train_step: Callable[[Sequence[Batch]], StepResult]
    ) -> None:
        plan = plan_epoch(train, self.settings, epoch)
        self.tell(events.EpochStarted(epoch, self.step, len(plan)))
        for chosen in plan:
            batch = make_batch([train[i] for i in chosen], sharing, self.pad_id)
            began = time.monotonic()
            result = train_step([batch])
            if not (math.isfinite(result.loss) and math.isfinite(result.grad_norm)):
                raise self._not_finite(epoch, batch, result)
            self.step += 1
            self.losses.append(result.loss)
            self.tokens_computed += batch.computed_tokens
            self.tokens_plain += batch.plain_tokens
            rate = number(self.schedule(mx.array(self.step)))
            seconds = round(time.monotonic() - began, 4)
            figures = (result.loss, rate, result.grad_norm, result.magnitude, batch.trained_tokens, seconds)
            self.tell(events.StepDone(self.step, epoch, *figures))

    def _end_of_epoch(self, epoch: int, valid: Rows, *, final: bool) -> None:
        loss = None
        if valid:
            shared = sharing_of(valid, enabled=self.settings.share_prefix)
            groups = [valid[i : i + 16] for i in range(0, len(valid), 16)]
            loss = mean_loss(self.model, [make_batch(group, shared, self.pad_id) for group in groups])
            self.valid_losses.append(loss)
        self.tell(events.EpochDone(epoch, self.step, loss))
        self._save(epoch, loss, final=final)
        score = self.losses[-1] if loss is None else loss
        if score < self.best[0]:
            self.best = (score, self.step)
            checkpoints.link(self.folder, "best", self.step)

    def _save(self, epoch: int, loss: float | None, *, final: bool) -> None:
        state = {"schema": "mlx-sentis/checkpoint/1", "step": self.step, "epoch": epoch, "valid_loss": loss}
        checkpoints.save_checkpoint(self.folder, self.model, self.facts, state)
        if self.saved is None:  # only now is there something in place of an earlier run's
            checkpoints.forget_others(self.folder, self.step)
        checkpoints.link(self.folder, "last", self.step)
        self.saved = self.step
        self.tell(events.Saved(self.step, epoch, f"checkpoints/{self.step}", final))

    def _not_finite(self, epoch: int, batch: Batch, result: StepResult) -> StageError:
        """Save the adapters as they were before the bad update and say where it happened."""
        if self.step and self.saved != self.step:
            self._save(epoch, None, final=True)
        kept = f"the state of update {self.step} is kept in checkpoints/{self.step}" if self.step else "nothing trained"
        what, found = ("gradient norm", result.grad_norm) if math.isfinite(result.loss) else ("loss", result.loss)
        self.tell(events.Stopped(self.step + 1, epoch, f"{what} is {found}"))
        return StageError(
            f"update {self.step + 1}, epoch {epoch}: {what} is {found}; "
            f"rows {', '.join(batch.names[:4])}{', …' if len(batch.names) > 4 else ''}; {kept}",
            hint="lower train.learning_rate, set train.gradient_clip=1.0, or look at these rows with show-mask",
        )
