"""Reading `log.jsonl`, also while it is being written and after a kill."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from weights_bridge.errors import StageError

WHOLE, NUMBER, TEXT = int, (int, float, NoneType), str  # figures that are not finite are null
NEEDED: dict[str, dict[str, Any]] = {
    "started": {"updates": WHOLE},
    "resumed": {"step": WHOLE},
    "step": {"step": WHOLE, "epoch": WHOLE, "seconds": NUMBER}
    | {f"train/{name}": NUMBER for name in ("loss", "lr", "grad_norm")},
    "epoch_done": {"step": WHOLE, "valid_loss": NUMBER},
    "saved": {"step": WHOLE},
    "stopped": {"step": WHOLE, "reason": TEXT},
    "interrupted": {"step": WHOLE, "signal": TEXT},
    "finished": {"best_step": WHOLE},
}


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
        alive: whether a process holds the folder of a training without an end.
    """

    started: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    end: dict[str, Any] | None = None
    alive: bool = True

    def take(self, event: dict[str, Any]) -> None:
        """Add one event.

        Raises:
            KeyError, TypeError: it is none.
        """
        for name, kind in NEEDED.get(event["event"], {}).items():
            if not isinstance(event[name], kind):
                raise TypeError(f"{name} is {event[name]!r}")
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
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not a training's log: {error}", hint="give a run folder, or its log.jsonl") from None
    log = Log()
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line end is not whole
        try:
            log.take(json.loads(line))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            hint = "this is not a training's log.jsonl, or it was edited"
            what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
            raise StageError(f"{path}:{number}: not an event of a training: {what}", hint=hint) from None
    return log
