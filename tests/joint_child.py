"""One of several processes that train together: `python joint_child.py REQUEST.json`, launched as mlx.launch does.

A request names a model, a folder and cases; each case is a training (`joint_training`), one after the other over one
connection, so that many cases cost one start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from training_rows import rendered_rows

from mlx_sentis.training import adapters, events, loop, ranks, resume, step
from mlx_sentis.training.definitions import load_causal_lm
from weights_bridge.errors import StageError
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

ROWS, VALID = rendered_rows(*range(9, 20)), rendered_rows(8, 11, *range(9, 40), seed=5)


class Acts:
    """A sink that does something when update `after` has been told."""

    def __init__(self, after: int, act: Any) -> None:
        self.after, self.act = after, act

    def receive(self, event: events.Event) -> None:
        if isinstance(event, events.StepDone) and event.step == self.after:
            self.act()


class Told:
    """A sink that keeps losses and tokens of updates."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def receive(self, event: events.Event) -> None:
        if isinstance(event, events.StepDone):
            self.steps.append({"loss": event.loss, "trained": event.trained_tokens, "computed": event.computed_tokens})


def joint_training(
    model_folder: Path,
    folder: Path,
    joined: ranks.Ranks,
    *,
    train: dict[str, Any],
    dropout: float = 0.0,
    rows: list[dict[str, Any]] = ROWS,
    plant: str = "",
    in_rank: int = 1,
    after: int = 3,
    resumes: bool = False,
) -> dict[str, Any]:
    """Train toy llama with a DoRA whose tensors are not at their starting values, and tell what came of it.

    Args:
        model_folder: the base model.
        folder: for checkpoints.
        joined: the processes.
        train: settings.
        dropout: of the adapter.
        rows: to train on.
        plant: `SIGTERM`, `SIGUSR1`, `kill`, `nan`, `memory` or `sink`: what happens in process `in_rank` after
            update `after`.
        in_rank: see `plant`.
        after: see `plant`.
        resumes: go on from the folder's last state.
    """
    from mlx_sentis.training.prove import move_adapters

    settings = Settings(adapter=AdapterSettings("dora", 4, 8.0, dropout=dropout), train=TrainSettings(**train))
    model = load_causal_lm(open_model_folder(model_folder))
    facts = adapters.facts_of(settings.adapter, adapters.add_adapters(model, settings.adapter, seed=joined.rank))
    move_adapters(model, seed=11 + joined.rank)  # the processes must follow the first one
    told, sinks = Told(), []
    origin = resume.origin_of(settings, {}, model, processes=joined.size)
    sound = step.loss_of_batch
    if plant and joined.rank == in_rank:
        sinks.append(Acts(after, lambda: planted(plant, sound)))
    try:
        state = resume.require_state(folder) if resumes else None
        if state:
            resume.require_same(state, origin)
        options: dict[str, Any] = {"origin": origin, "resumed": state, "ranks": joined}
        loop.Trainer(model, facts, settings, folder, [told, *sinks], 0, **options).run(rows, VALID)
        ended = {"ended": "well"}
    except StageError as error:
        ended = {"ended": type(error).__name__, "message": error.message}
    except OSError as error:
        ended = {"ended": type(error).__name__, "message": str(error)}
    finally:
        step.loss_of_batch = sound
    return ended | {"steps": told.steps}


def planted(what: str, sound: Any) -> None:
    if what.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[what].value)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "nan":
        step.loss_of_batch = lambda *words: sound(*words) * float("nan")
    elif what == "memory":
        step.loss_of_batch = _raise_memory_error
    elif what == "sink":
        raise OSError("the tracker is gone")


def _raise_memory_error(*words: object) -> Any:
    raise MemoryError("std::bad_alloc")


def main(request_file: str) -> None:
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    joined, work = ranks.join(), Path(request["work"])
    for name, case in request["cases"].items():
        rows = rendered_rows(*case.pop("tails")) if "tails" in case else ROWS
        folder = work / case.pop("folder", name)
        found = joint_training(Path(request["model"]), folder, joined, rows=rows, **case)
        (work / f"{name}-{joined.rank}.json").write_text(json.dumps(found), encoding="utf-8")
        if joined.lost:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
