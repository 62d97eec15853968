"""Who hears of a training's events: the dashboard's tqdm line, `log.jsonl`, and what stands around them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from mlx_sentis.training.events import (
    ENDS,
    EpochDone,
    EpochStarted,
    Event,
    Finished,
    Interrupted,
    Resumed,
    Saved,
    Sink,
    Started,
    StepDone,
    Stopped,
)
from weights_bridge.console import reader_left
from weights_bridge.files import CannotWriteError


def sinks_on(where: str, say: Callable[[str], None] = lambda text: None) -> list[Sink]:
    """Return the sinks for a place: a bar on stdout or stderr, JSON lines on stdout, or none.

    Args:
        where: `stdout`, `stderr`, `jsonl` or `off`.
        say: hears that its reader has left.
    """
    if where == "off":
        return []
    stream = sys.stderr if where == "stderr" else sys.stdout
    sink = JsonLines(stream) if where == "jsonl" else ProgressBar(stream)
    return [WhileRead(sink, stream, say)]


class ProgressBar:
    """The tqdm line that the dashboard parses: one bar per epoch, `Step N, Epoch E`, four figures.

    Args:
        stream: where it goes; stdout unless the answer goes there.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.bar: tqdm[Any] | None = None

    def receive(self, event: Event) -> None:
        match event:
            case Started():
                self._line(f"Seed set to {event.seed}")
                self._line(
                    f"Trainable LoRA params: {event.trained_parameters:,} in {event.trained_modules} modules; "
                    f"{event.rows} rows, {event.prefix_tokens} prompt tokens shared, {event.updates} updates"
                )
            case Resumed():
                self._line(f"Resumed after update {event.step} of {event.updates}, epoch {event.epoch}")
            case EpochStarted():
                self.bar = tqdm(
                    total=event.batches,
                    initial=event.done,
                    desc=f"Step {event.step}, Epoch {event.epoch}",
                    mininterval=0,
                    miniters=1,
                    file=self.stream,
                )
            case StepDone():
                self._step(event)
            case EpochDone():
                self._close()
                if event.valid_loss is not None:
                    self._line(f"Epoch {event.epoch} done: valid/loss={event.valid_loss:.6f}")
            case Saved():
                self._line(f"✓ Saved checkpoint -- {event.name}{' (final)' if event.final else ''}")
            case Stopped():
                self._close()
                self._line(f"Stopped at update {event.step}: {event.reason}")
            case Interrupted():
                self._close()
                self._line(f"Interrupted by {event.signal} after update {event.step}")
            case Finished():
                self._close()
                if event.reason:
                    self._line(event.reason)
                self._line("Training done")

    def _step(self, event: StepDone) -> None:
        assert self.bar is not None
        self.bar.set_postfix(
            {
                "train/loss": f"{event.loss:.6f}",
                "train/lr": f"{event.lr:.3e}",
                "train/grad_norm": f"{event.grad_norm:.6f}",
                "train/lora_magnitude": f"{event.lora_magnitude:.6f}",
            }
        )
        self.bar.set_description(f"Step {event.step}, Epoch {event.epoch}")
        self.bar.update(1)

    def give_up(self) -> None:
        """Write nothing more, also not when the bar is thrown away."""
        if self.bar is not None:
            self.bar.disable = True

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _line(self, text: str) -> None:
        """Print a line without tearing the bar: clear and disable it, print, enable and refresh."""
        if self.bar is not None:
            self.bar.clear()
            self.bar.disable = True
        print(text, file=self.stream, flush=True)
        if self.bar is not None:
            self.bar.disable = False
            self.bar.refresh()


class JsonLines:
    """One JSON object per event; figures that are not finite become null.

    Args:
        target: a file to make, written event by event, or an open stream.
        append: go on in the file that is there; a last line that a kill cut off is removed first.
    """

    def __init__(self, target: Path | TextIO, *, append: bool = False) -> None:
        self.path = target if isinstance(target, Path) else None
        with self._writing():
            if isinstance(target, Path) and append:
                remove_cut_line(target)
            mode = "a" if append else "w"
            self.file = target.open(mode, encoding="utf-8") if isinstance(target, Path) else target

    def receive(self, event: Event) -> None:
        name = {"StepDone": "step"}.get(type(event).__name__, _snake(type(event).__name__))
        fields = {self._key(event, key): _finite(value) for key, value in asdict(event).items()}
        with self._writing():
            print(json.dumps({"event": name} | fields, ensure_ascii=False, allow_nan=False), file=self.file, flush=True)
        if self.path is not None and isinstance(event, ENDS):
            self.file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.path is None:
                raise  # a stream's reader left: not ours to explain
            raise CannotWriteError(self.path, error, kept="what was written before is kept") from error

    @staticmethod
    def _key(event: Event, key: str) -> str:
        # the same names as in the bar, so that one parser reads both
        shown = ("loss", "lr", "grad_norm", "lora_magnitude")
        return f"train/{key}" if isinstance(event, StepDone) and key in shown else key


class AtFirstSave:
    """Does something once there is a checkpoint of this training.

    Args:
        action: what.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self.action: Callable[[], object] | None = action

    def receive(self, event: Event) -> None:
        if isinstance(event, Saved) and self.action is not None:
            action, self.action = self.action, None
            action()


class WhileRead:
    """A sink on a stream whose reader may leave (`head`, a dashboard that ends): training goes on without it.

    Args:
        sink: writes to the stream.
        stream: of this process.
        say: hears that nobody reads any more.
    """

    def __init__(self, sink: Sink, stream: TextIO, say: Callable[[str], None] = lambda text: None) -> None:
        self.sink: Sink | None = sink
        self.stream, self.say = stream, say

    def receive(self, event: Event) -> None:
        if self.sink is None:
            return
        try:
            self.sink.receive(event)
        except BrokenPipeError:
            if isinstance(self.sink, ProgressBar):
                self.sink.give_up()
            self.sink = None
            reader_left(self.stream)
            self.say("nobody reads the progress any more: training goes on without it; log.jsonl has every update")


def remove_cut_line(log: Path) -> None:
    """Cut a file after its last line end, where a killed process left half a line."""
    if not log.is_file():
        return
    with log.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value
