"""Sinks for trackers that a user has installed: Weights & Biases, Trackio, TensorBoard. None of them is needed."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlx_sentis.training import events
from weights_bridge.errors import StageError
from weights_bridge.settings import Settings

PROJECT = "mlx-sentis"
Write = Callable[[dict[str, float], int], object]
Tracker = tuple[Write, Callable[[], object]]  # takes figures and update; ends its run


class Reporter:
    """Hands the figures of updates and epochs to a tracker. One that fails is given up, and training goes on.

    Args:
        write: takes name to figure, and the update.
        finish: ends the tracker's run.
        name: of the tracker.
        say: hears why it was given up.
    """

    def __init__(
        self,
        write: Write,
        finish: Callable[[], object],
        name: str = "tracker",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.write, self.finish, self.name, self.say = write, finish, name, say
        self.failed = False

    def receive(self, event: events.Event) -> None:
        if self.failed:
            return
        try:
            if figures := figures_of(event):
                self.write(figures, event.step)  # type: ignore[union-attr] - events with figures have a step
            if isinstance(event, events.ENDS):
                self.finish()
        except Exception as error:  # whatever a tracker's network or disk does, it is not the training's
            self.failed = True
            self.say(f"--report-to {self.name}: {_said(error)}; training goes on without it")


def _said(error: Exception) -> str:
    """Return an error's first line, with its kind."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no word').splitlines()[0][:300]}"


def figures_of(event: events.Event) -> dict[str, float]:
    """Return the figures of an event by the names that `log.jsonl` and the progress line use."""
    match event:
        case events.StepDone():
            return {
                "train/loss": event.loss,
                "train/lr": event.lr,
                "train/grad_norm": event.grad_norm,
                "train/lora_magnitude": event.lora_magnitude,
                "tokens_per_second/computed": event.computed_per_second,
                "tokens_per_second/real": event.real_per_second,
                "tokens_per_second/supervised": event.trained_per_second,
                "peak_memory_gib": event.peak_memory_gib,
                "epoch": event.epoch,
            }
        case events.EpochDone(valid_loss=float() as loss):
            return {"valid/loss": loss}
    return {}


def tracker_module(name: str) -> Any:
    """Return a tracker's module.

    Args:
        name: `wandb`, `trackio` or `tensorboard`.

    Raises:
        StageError: it is not installed, with the command that does.
    """
    try:
        return importlib.import_module("tensorboard.summary" if name == "tensorboard" else name)
    except ImportError:
        raise StageError(f"--report-to {name}: not installed", hint=f"pip install {name}") from None


def reporter(name: str, run: Path, settings: Settings, say: Callable[[str], None] = lambda text: None) -> Reporter:
    """Return the sink of a tracker.

    Args:
        name: `wandb`, `trackio` or `tensorboard`.
        run: the run folder; its name is the run's name there.
        settings: told to the tracker.
        say: hears of a tracker that fails while training goes on.

    Raises:
        StageError: the tracker is not installed, with the command that does; or it does not start.
    """
    module = tracker_module(name)
    try:
        write, finish = {"wandb": _wandb, "trackio": _trackio, "tensorboard": _tensorboard}[name](
            module, run, asdict(settings)
        )
    except Exception as error:
        hint = f"see {name}'s own messages above, or train without --report-to {name}"
        raise StageError(f"--report-to {name}: does not start: {_said(error)}", hint=hint) from None
    return Reporter(write, finish, name, say)


def _quietly(call: Callable[..., Any], *words: Any, **named: Any) -> Any:
    """Call Trackio with what it prints on stderr: stdout is the progress line's, or the answer's."""
    with contextlib.redirect_stdout(sys.stderr):
        return call(*words, **named)


def _wandb(wandb: Any, run: Path, config: dict[str, Any]) -> Tracker:
    opened = wandb.init(project=PROJECT, name=run.resolve().name, dir=str(run), config=config)
    return lambda figures, step: opened.log(figures, step=step), opened.finish


def _trackio(trackio: Any, run: Path, config: dict[str, Any]) -> Tracker:
    _quietly(trackio.init, project=PROJECT, name=run.resolve().name, config=config)
    return lambda figures, step: trackio.log(figures, step=step), lambda: _quietly(trackio.finish)


def _tensorboard(summary: Any, run: Path, config: dict[str, Any]) -> Tracker:
    writer = summary.Writer(str(run / "tensorboard"))

    def write(figures: dict[str, float], step: int) -> None:
        for name, figure in figures.items():
            writer.add_scalar(name, figure, step)
        writer.flush()

    return write, writer.close
