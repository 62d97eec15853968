"""Reading `log.jsonl`, also while it is being written and after a kill."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weights_bridge.errors import StageError


@dataclass
class Log:
    """What a training said, with what a resume voided left out.

    Attributes:
        started: the last start's event.
        steps: events of updates, each number once, in order.
        epochs: events of validations.
        saved: events of checkpoints.
        resumed: updates after which a process went on.
        end: the event that ended the last process; None while it runs, or when it was killed.
    """

    started: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    end: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Add one event."""
        match event["event"]:
            case "started":
                self.started, self.end = event, None
            case "resumed":
                self.resumed.append(event["step"])
                for events in (self.steps, self.epochs, self.saved):
                    events[:] = [one for one in events if one["step"] <= event["step"]]
            case "step":
                self.steps.append(event)
            case "epoch_done":
                self.epochs.append(event)
            case "saved":
                self.saved.append(event)
            case "stopped" | "interrupted" | "finished":
                self.end = event


def read_log(path: Path) -> Log:
    """Read a log; a last line that is still being written, or that a kill cut off, is left out.

    Raises:
        StageError: no such file, or a whole line that is no event.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="`mlx-sentis train` writes it while it runs") from None
    log = Log()
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line end is not whole
        try:
            log.take(json.loads(line))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            hint = "this is not a training's log.jsonl, or it was edited"
            raise StageError(f"{path}:{number}: not an event of a training: {error}", hint=hint) from None
    return log
