"""One process of a resume certificate: it trains like any other, and says where it is so that it can be killed there.

`python -m mlx_sentis.training.certificate_child REQUEST.json`; it writes checkpoints and `log.jsonl` into the
request's folder and lines such as `inside 7` on stdout.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_sentis.training import adapters, checkpoints, loop
from mlx_sentis.training.batches import Batch
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.resume import origin_of, require_same, require_state
from mlx_sentis.training.sinks import JsonLines
from mlx_sentis.training.step import StepResult
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import resolve

REFUSED = 4  # the exit code of a child that may not go on from its state


class EnoughError(Exception):
    """The certificate's last update is done."""


def wait_here(words: str) -> None:
    """Say where this process is and wait there for the kill."""
    print(words, flush=True)
    sys.stdin.read()


class Stopping(list[Batch]):
    """Micro-batches of an update; before the last one is taken up, the process waits to be killed."""

    def __init__(self, batches: list[Batch], words: str) -> None:
        super().__init__(batches)
        self.words = words

    def __getitem__(self, key: Any) -> Any:
        return self._rest(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)

    def _rest(self, batches: list[Batch]) -> Iterator[Batch]:
        for index, batch in enumerate(batches):
            if index + 1 == len(batches):
                wait_here(self.words)
            yield batch


class WatchedTrainer(loop.Trainer):
    """A trainer that ends after a number of updates and can be caught at a chosen place.

    Attributes:
        until: the update after which it saves and ends.
        place: `inside`, `between micro-batches` or `while saving`; with `at`, where it will be killed.
        at: the update.
    """

    until = 0
    place = ""
    at = 0

    def _update(self, batches: list[Batch]) -> StepResult:
        number = self.done.step + 1
        if number == self.at and self.place == "inside":
            print(f"inside {number}", flush=True)
        if number >= self.at and self.place == "between micro-batches" and len(batches) > 1:  # not an epoch's tail
            batches = Stopping(batches, f"between {number}")
        return super()._update(batches)

    def _save(self, loss: float | None, **named: Any) -> None:
        if self.done.step >= self.at and self.place == "while saving":
            checkpoints.write_json = lambda path, value: wait_here(f"saving {self.done.step}")
        super()._save(loss, **named)

    def _answer_signals(self, *, last: bool) -> None:
        if self.done.step >= self.until:
            self._save(None)
            raise EnoughError
        super()._answer_signals(last=last)


def main(request_file: str) -> int:
    """Train from the start or from the newest state until the request's last update."""
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    run, folder = Path(request["run"]), Path(request["folder"])
    settings = resolve(file=Path(request["settings"])).settings
    recipe = read_json(run / "recipe.json")
    train, valid = (read_jsonl(run / "data" / f"{split}.jsonl") for split in ("train", "valid"))
    model = load_causal_lm(open_model_folder(Path(recipe["model"]["path"])))
    facts = adapters.prepare_training(model, settings)
    origin = origin_of(settings, {}, model)
    try:
        state = require_state(folder / "checkpoints") if request["resume"] else None
        if state:
            require_same(state, origin)
    except StageError as error:
        print(f"refused {json.dumps(error.message)}", flush=True)
        return REFUSED
    log = JsonLines(folder / "log.jsonl", append=request["resume"])
    where = (folder / "checkpoints", [log], recipe["pad_id"])
    trainer = WatchedTrainer(model, facts, settings, *where, origin=origin, resumed=state)
    trainer.until, trainer.place, trainer.at = request["until"], request["place"], request["at"]
    with contextlib.suppress(EnoughError):
        trainer.run(train, valid)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
