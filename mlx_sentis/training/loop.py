"""Training: epochs over the prepared rows, validation, checkpoints. The figures go to sinks as events.

Training only: nothing is generated between epochs. Generation would take most of a session's time on Apple's
GPUs, more so in batches (a memory cliff) and as the machine warms up; the validation loss of one forward pass ranks
checkpoints, and how the model answers is measured once, by `eval`, through the exported graph.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map

from mlx_sentis.training import adapters, checkpoints, events, memory
from mlx_sentis.training.activations import checkpoint_activations
from mlx_sentis.training.batches import Batch, make_batch
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.interrupts import InterruptedTrainingError, Interrupts
from mlx_sentis.training.optimisers import long_warmup, make_optimizer
from mlx_sentis.training.plan import Rows, Trained, count_updates, largest_batch, leftovers, plan_updates, share_of
from mlx_sentis.training.ranks import ALONE, LostProcessError, Ranks
from mlx_sentis.training.resume import Progress, SavedState, random_key, set_random_key, take_state
from mlx_sentis.training.sharing import Sharing, sharing_of
from mlx_sentis.training.step import StepResult, arrays_of, loss_of_batch, make_train_step, number
from weights_bridge.errors import StageError
from weights_bridge.settings import Settings

VALID_ROWS = 16  # of one validation batch
PACE = 20  # updates whose mean time predicts the rest


def mean_loss(model: CausalLM, batches: Sequence[Batch]) -> float:
    """Return the mean loss over the labelled tokens of some batches, nats."""
    return mean_of(loss_and_tokens(model, batch) for batch in batches)


def loss_and_tokens(model: CausalLM, batch: Batch) -> tuple[float, int]:
    """Return the summed loss of a batch and over how many labelled tokens."""
    return number(loss_of_batch(model, arrays_of(batch))) * batch.trained_tokens, batch.trained_tokens


def mean_of(sums: Iterable[tuple[float, float]]) -> float:
    total, tokens = 0.0, 0.0
    for loss, count in sums:
        total, tokens = total + loss, tokens + count
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
        origin: what the states are of, see `resume.origin_of`; nothing for a run that nobody will resume.
        resumed: the state to go on from.
        say: hears the memory estimate.
        ranks: the processes that train together. The first one writes checkpoints and tells the sinks.
    """

    def __init__(
        self,
        model: CausalLM,
        facts: adapters.AdapterFacts,
        settings: Settings,
        folder: Path,
        sinks: Sequence[events.Sink],
        pad_id: int,
        *,
        origin: Mapping[str, Any] | None = None,
        resumed: SavedState | None = None,
        say: Callable[[str], None] = lambda text: None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model, self.facts, self.settings, self.ranks = model, facts, settings.train, ranks
        self.folder, self.sinks, self.pad_id = folder, sinks, pad_id
        self.origin, self.resumed, self.say = origin or {}, resumed, say
        self.done = resumed.progress if resumed else Progress()
        self.losses: list[float] = []
        self.saved: int | None = self.done.step if resumed else None
        self.pace: deque[float] = deque(maxlen=PACE)
        self.peak_gib = 0.0

    def tell(self, event: events.Event) -> None:
        with self.ranks.together():
            for sink in self.sinks:
                sink.receive(event)

    def run(self, train: Rows, valid: Rows) -> Trained:
        """Train for `settings.train.epochs` and return what came of it.

        Raises:
            StageError: a loss that is not finite, memory that ran out, a signal; the last good state is saved.
        """
        self._start(train, valid)
        with Interrupts() as self.interrupts:
            try:
                while not self.done.finished:
                    self._epoch()
                    self._end_of_epoch()
            except LostProcessError as error:
                raise self._lost(error) from error
        reason = ""
        if self.done.epoch < self.settings.epochs:
            reason = f"No better validation loss for {self.done.stale_epochs} epochs: ended by train.patience"
        self.tell(events.Finished(self.done.step, round(self.done.seconds, 3), self.done.best_step, reason))
        return self._outcome()

    def _start(self, train: Rows, valid: Rows) -> None:
        settings = self.settings
        self.train, self.valid = train, valid
        self.tokens = {row["id"]: len(row["ids"]) for row in train}
        self.sharing = self._sharing_of(train)
        self.updates = count_updates(train, settings)
        for words in filter(None, (leftovers(train, settings), long_warmup(settings, self.updates))):
            self.say(words)
        self.optimizer, self.schedule = make_optimizer(settings, self.updates)
        if settings.checkpoint_activations:
            checkpoint_activations(self.model)
        mx.random.seed(settings.seed)
        self.train_step = make_train_step(self.model, self.optimizer, settings, self.ranks)
        largest = largest_batch(train, settings)
        self.estimate = memory.estimate(self.model, self._batch(self._share(largest) or largest), settings)
        self.say(memory.outlook(self.estimate, settings))
        if self.resumed:
            with self.ranks.together():
                if self.ranks.first:
                    self.resumed.put_back(self.model, self.optimizer)
            self.done.finished = self._is_over()
        self._follow_first()
        parameters = sum(array.size for array in adapters.adapter_tensors(self.model).values())
        counts = (len(self.facts.targets), parameters, len(train), self.sharing.prefix_tokens, self.updates)
        self.tell(events.Started(settings.seed, *counts))
        if self.resumed:
            self.tell(events.Resumed(self.done.step, self.done.epoch, self.updates))

    def _sharing_of(self, rows: Rows) -> Sharing:
        rule = self.resumed.sharing if self.resumed else None
        return sharing_of(rows, enabled=self.settings.share_prefix, rule=rule)

    def _is_over(self) -> bool:
        patience = self.settings.patience
        return self.done.epoch >= self.settings.epochs or 0 < patience <= self.done.stale_epochs

    def _batch(self, chosen: list[int]) -> Batch:
        return make_batch([self.train[i] for i in chosen], self.sharing, self.pad_id)

    def _follow_first(self) -> None:
        """Take over the first process's tensors: chips of two kinds find other singular vectors and last bits."""
        if self.ranks.alone:
            return
        tensors = dict(tree_flatten(self.model.network.trainable_parameters()))
        if any(adapters.adapted_modules(self.model.network)):
            tensors |= adapters.file_tensors(self.model)  # the fixed bases as well
        self.model.network.load_weights(list(self.ranks.tree_of_first(tensors).items()), strict=False)
        self.optimizer.state.update(self.ranks.tree_of_first(dict(self.optimizer.state)))

    def _share(self, chosen: list[int]) -> list[int]:
        return share_of(self.train, chosen, self.ranks.rank, self.ranks.size)

    def _seed_of_update(self) -> None:
        """Give each of several processes its own random numbers, which nothing but update and rank decide."""
        if self.ranks.size > 1:
            words = np.random.SeedSequence([self.settings.seed, self.done.step, self.ranks.rank]).generate_state(2)
            set_random_key([int(word) for word in words])

    def _epoch(self) -> None:
        plan = plan_updates(self.train, self.settings, self.done.epoch)
        self.tell(events.EpochStarted(self.done.epoch, self.done.step, len(plan), self.done.position))
        self.model.network.train()  # dropout
        for group in plan[self.done.position :]:
            began = time.monotonic()
            self.chosen = [i for chosen in group for i in chosen]
            batches = [self._batch(share) for chosen in group if (share := self._share(chosen))]
            self._seed_of_update()
            result = self._update(batches)
            self.done.step += 1
            self.done.position += 1
            self._count(batches, result, time.monotonic() - began)
            self._answer_signals(last=self.done.position == len(plan))

    def _update(self, batches: list[Batch]) -> StepResult:
        """Do one update, or end training with everything as it was before it."""
        before = tree_map(lambda array: array, (self.model.network.trainable_parameters(), dict(self.optimizer.state)))
        key = random_key()
        mx.reset_peak_memory()
        try:
            result = self.train_step(batches)
            peak = float(self.ranks.highest(np.array(memory.peak_gib())))
        except (MemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error):
                raise
            mx.clear_cache()
            self._go_back(before, key)
            raise self._out_of_memory(batches, f"does not fit into memory ({error})") from error
        except LostProcessError:
            self._go_back(before, key)
            raise
        self.peak_gib = max(self.peak_gib, peak)
        if too_much := memory.above_limit(self.settings, peak):
            self._go_back(before, key)
            raise self._out_of_memory(batches, too_much)
        if result.unfinite:
            raise self._not_finite(result)
        return result

    def _go_back(self, before: tuple[Any, Any], key: list[int]) -> None:
        self.model.network.update(before[0])  # half an update leaves graphs that cannot be evaluated
        self.optimizer.state.update(before[1])
        set_random_key(key)

    def _count(self, batches: list[Batch], result: StepResult, seconds: float) -> None:
        done = self.done
        done.first_loss = result.loss if done.first_loss is None else done.first_loss
        done.last_loss = result.loss
        done.seconds += seconds
        self.losses.append(result.loss)
        self.pace.append(seconds)
        kinds = ("trained", "real", "computed", "plain")
        own = [sum(getattr(batch, f"{kind}_tokens") for batch in batches) for kind in kinds]
        trained, real, computed, plain = self.ranks.added(np.array(own)).tolist()
        done.tokens_computed += computed
        done.tokens_plain += plain
        left = (self.updates - done.step) * sum(self.pace) / len(self.pace)
        self.tell(
            events.StepDone(
                done.step,
                done.epoch,
                result.loss,
                number(self.schedule(mx.array(done.step))),
                result.grad_norm,
                result.magnitude,
                trained,
                round(seconds, 4),
                real,
                computed,
                round(trained / seconds, 1),
                round(real / seconds, 1),
                round(computed / seconds, 1),
                round(self.peak_gib, 4),
                round(left, 1),
            )
        )

    def _answer_signals(self, *, last: bool) -> None:
        """Save between two updates when it is time or asked for; end when told to."""
        due = bool(self.settings.save_every) and self.done.step % self.settings.save_every == 0
        asked, stop = self._signals()
        if stop or ((due or asked) and not last):  # the last one is saved with its epoch
            self._save(None)
        if stop:
            self.tell(events.Interrupted(self.done.step, self.done.epoch, stop))
            kept = f"stopped by {stop} after update {self.done.step} of {self.updates}; its state is saved in "
            hint = "`mlx-sentis train --resume` goes on from there, and so does `mlx-sentis run --from train`"
            raise InterruptedTrainingError(stop, f"{kept}checkpoints/{self.done.step}", hint=hint)

    def _signals(self) -> tuple[bool, str]:
        """Return whether a process was asked to save, and by which signal one was asked to stop."""
        stop = self.interrupts.stop
        number = signal.Signals[stop].value if stop else 0
        asked, number = self.ranks.highest(np.array([self.interrupts.save_wanted(), number])).tolist()
        return bool(asked), signal.Signals(number).name if number else ""

    def _valid_loss(self) -> float:
        """Return the mean loss over the labelled tokens of the validation rows, its batches dealt out to all ranks."""
        self.model.network.eval()
        shared = self._sharing_of(self.valid)
        starts = range(0, len(self.valid), VALID_ROWS)
        sums = np.zeros((len(starts), 2))
        with self.ranks.together():
            for number in range(self.ranks.rank, len(starts), self.ranks.size):
                group = self.valid[starts[number] : starts[number] + VALID_ROWS]
                sums[number] = loss_and_tokens(self.model, make_batch(group, shared, self.pad_id))
        return mean_of(self.ranks.added(sums).tolist())

    def _end_of_epoch(self) -> None:
        done, loss = self.done, None
        if self.valid:
            loss = self._valid_loss()
            done.valid_losses.append(loss)
        self.tell(events.EpochDone(done.epoch, done.step, loss))
        score = self.losses[-1] if loss is None else loss
        if better := done.best_score is None or score < done.best_score:
            done.best_score, done.best_step, done.stale_epochs = score, done.step, 0
        else:
            done.stale_epochs += 1
        epoch, done.epoch, done.position = done.epoch, done.epoch + 1, 0
        done.finished = self._is_over()
        self._save(loss, epoch=epoch, best=better)

    def _save(self, loss: float | None, *, epoch: int | None = None, best: bool = False) -> None:
        """Write a checkpoint of where the run stands; `epoch` is the one to name when it has just ended."""
        step, epoch = self.done.step, self.done.epoch if epoch is None else epoch
        self._follow_first()  # who resumes starts from what is saved here, and so does who goes on
        with self.ranks.together():
            if self.ranks.first:
                self._write(step, loss, best)
        self.saved = step
        self.tell(events.Saved(step, epoch, f"checkpoints/{step}", self.done.finished))

    def _write(self, step: int, loss: float | None, best: bool) -> None:
        state, arrays = take_state(self.done, self.origin, self.model, self.optimizer, self.sharing)
        checkpoints.save_checkpoint(self.folder, self.model, self.facts, state | {"valid_loss": loss}, arrays)
        checkpoints.link(self.folder, "last", step)
        if self.saved is None:  # only now is there something in place of an earlier run's
            checkpoints.forget_others(self.folder, step)
        if best:
            checkpoints.link(self.folder, "best", step)
        if self.settings.keep_last:
            checkpoints.prune(self.folder, self.settings.keep_last, self.done.best_step)

    def _keep(self) -> str:
        """Save where the run stands, when it has come anywhere, and say so."""
        if self.done.step == 0:
            return "nothing trained"
        if self.saved != self.done.step:
            self._save(None, best=self.done.best_step == self.done.step)
        return f"the state of update {self.done.step} is kept in checkpoints/{self.done.step}"

    def _out_of_memory(self, batches: list[Batch], what: str) -> StageError:
        kept, step = self._keep(), self.done.step + 1
        # dashboards look for the word and do not start such a run again
        self.tell(events.Stopped(step, self.done.epoch, f"OutOfMemoryError: it {what}"))
        return memory.out_of_memory(step, batches, self.tokens, what, kept)

    def _lost(self, error: LostProcessError) -> StageError:
        kept = self._keep()
        self.tell(events.Stopped(self.done.step + 1, self.done.epoch, error.message))
        return LostProcessError(f"update {self.done.step + 1}: {error.message}; {kept}", hint=error.hint)

    def _not_finite(self, result: StepResult) -> StageError:
        """Save the adapters as they were before the bad update and say where it happened."""
        kept, step = self._keep(), self.done.step + 1
        self.tell(events.Stopped(step, self.done.epoch, result.unfinite))
        names = [self.train[i]["id"] for i in self.chosen]
        return StageError(
            f"update {step}, epoch {self.done.epoch}: {result.unfinite}; "
            f"rows {', '.join(names[:4])}{', …' if len(names) > 4 else ''}; {kept}",
            hint="lower train.learning_rate, set train.gradient_clip=1.0, or look at these rows with show-mask",
        )

    def _outcome(self) -> Trained:
        done = self.done
        counts = (self.sharing.prefix_tokens, done.tokens_computed, done.tokens_plain, done.seconds, done.step)
        gib = (round(self.estimate.gib, 4), round(self.peak_gib, 4))
        return Trained(done.best_step, self.losses, done.valid_losses, *counts, *gib)
