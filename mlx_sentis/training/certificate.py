"""The resume certificate: a run killed and resumed several times equals the one that never stopped.

Both are real processes on the run's own data and settings, with its whole schedule; only the first updates are
computed. The kills are `kill -9`: inside an update, between the micro-batches of one, and while a checkpoint is
being written. Then losses, trained tensors, optimiser, random key and place in the data are compared bit by bit.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.blas import for_children
from mlx_sentis.training.after_kill import PROOF
from mlx_sentis.training.certificate_child import REFUSED
from mlx_sentis.training.equality import Compared, compare
from mlx_sentis.training.plan import plan_updates, read_prepared, require_trainable
from mlx_sentis.training.resume import last_state
from mlx_sentis.watch.log import read_log
from weights_bridge.errors import StageError
from weights_bridge.files import write_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Resolved, Settings

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 20


@dataclass(frozen=True)
class Kill:
    """One kill -9: where in which update, and the update of the state that the next process went on from."""

    place: str
    update: int
    epoch: int
    resumed_after: int


@dataclass
class Certificate:
    """What was killed and what came of it."""

    updates: int
    seed: int
    kills: list[Kill] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    refused: str = ""
    repeatable: bool | None = None  # whether two runs that never stopped are equal; looked at only after a failure

    @property
    def passed(self) -> bool:
        sound = all(one.count and not one.differing for one in self.compared)
        return bool(self.compared) and bool(self.kills) and sound and not self.refused

    def as_json(self) -> dict[str, Any]:
        return {"passed": self.passed} | asdict(self)

    def text(self) -> str:
        """Return the table that people read."""
        rows = [
            (f"kill {n}", f"{k.place} of update {k.update}, epoch {k.epoch}; resumed after update {k.resumed_after}")
            for n, k in enumerate(self.kills, 1)
        ]
        rows += [("refused", self.refused)] if self.refused else []
        rows += [one.row() for one in self.compared]
        lines = [f"  {what:<18} {found}" for what, found in rows]
        verdict = "equal to the bit" if self.passed else "NOT equal"
        head = f"{self.updates} updates, killed {len(self.kills)} times (seed {self.seed}), against {self.updates} "
        return "\n".join([f"{head}without a stop: {verdict}", *lines])


def prove_resume(
    run: RunFolder,
    settings: Settings,
    say: Callable[[str], None] = lambda text: None,
    *,
    updates: int = UPDATES,
    seed: int | None = None,
    meddle: Callable[[Path], object] = lambda folder: None,
) -> Certificate:
    """Kill and resume a run's first updates, compare, and write `parity/resume.json`.

    Args:
        run: with prepared data.
        settings: as they will be trained with.
        say: hears of every process.
        updates: how many, at most those of the run.
        seed: of the places of the kills; None draws one.
        meddle: called with the newest checkpoint's folder after each kill; tests damage the state there.

    Raises:
        StageError: too few updates to kill anything, or a process failed by itself.
    """
    train, valid = (read_prepared(run.path("data", f"{split}.jsonl")) for split in ("train", "valid"))
    require_trainable(train, settings.train, valid)
    places = list(
        islice((e for e in range(settings.train.epochs) for _ in plan_updates(train, settings.train, e)), updates)
    )
    total = len(places)
    if total < 4:
        hint = "--set train.epochs=2, or a smaller train.batch_rows"
        raise StageError(f"a certificate needs 4 updates, this run has {total}", hint=hint)
    found = Certificate(total, random.SystemRandom().randrange(10**6) if seed is None else seed)
    with tempfile.TemporaryDirectory(prefix=PROOF, dir=run.root) as work:
        every = max(1, min(settings.train.save_every or 3, total // 4))
        proving = replace(settings, train=replace(settings.train, save_every=every, keep_last=0))
        Resolved(proving, {}).write(Path(work) / "settings.toml")
        bench = Bench(run, Path(work), total, say)
        bench.whole("whole")
        _kill_and_resume(bench, found, places, every, settings.train.accumulate, meddle)
        if not found.refused:
            found.compared = compare(Path(work) / "whole", Path(work) / "cut", total)
        if found.compared and not found.passed:
            bench.whole("again")
            again = compare(Path(work) / "whole", Path(work) / "again", total)
            found.repeatable = all(not one.differing for one in again)
    write_json(run.path("parity", "resume.json"), {"schema": "mlx-sentis/resume/1"} | found.as_json())
    return found


def _kill_and_resume(
    bench: Bench, found: Certificate, epochs: list[int], every: int, accumulate: int, meddle: Callable[[Path], object]
) -> None:
    draw = random.Random(found.seed)
    for place, at in choose_kills(draw, epochs, every, accumulate):
        reached = bench.kill("cut", place, at, draw.random())
        if reached is None:
            found.refused = bench.refused
            return
        state = last_state(bench.work / "cut" / "checkpoints")
        after = state.progress.step if state else 0
        if state:
            meddle(state.folder)
        found.kills.append(Kill(place, reached, epochs[reached - 1], after))
        bench.say(f"killed {place} of update {reached}; the newest state is of update {after}")
    if not bench.whole("cut"):
        found.refused = bench.refused


def choose_kills(draw: random.Random, epochs: list[int], every: int, accumulate: int) -> list[tuple[str, int]]:
    """Return (place, update) of each kill, in order: random updates that are not the first of their epoch.

    Args:
        draw: decides.
        epochs: the epoch of each update.
        every: updates between two states; the first kill lies behind the first state.
        accumulate: micro-batches of an update; one cannot be stopped between them.
    """
    places = ["inside", *(["between micro-batches"] if accumulate > 1 else []), "while saving"]
    total = len(epochs)
    bounds = [every + 1 + (total - every) * part // len(places) for part in range(len(places) + 1)]
    kills = []
    for place, (first, end) in zip(places, pairwise(bounds), strict=True):
        possible = range(first, min(end, total))
        inner = [update for update in possible if epochs[update - 1] == epochs[update - 2]]
        if chosen := inner or list(possible):
            kills.append((place, draw.choice(chosen)))
    return kills


@dataclass
class Bench:
    """Starts the children of a certificate.

    Attributes:
        run: with data and recipe.
        work: where their folders are.
        total: the last update.
        say: hears of every process.
        refused: why a child would not go on from its state.
    """

    run: RunFolder
    work: Path
    total: int
    say: Callable[[str], None]
    refused: str = ""

    def whole(self, name: str) -> bool:
        """Let a child train to the last update; False when it refuses its state."""
        child = self._start(name, "", 0)
        out, err = child.communicate()
        if child.returncode == REFUSED:
            self.refused = _refusal(out)
            return False
        if child.returncode:
            raise StageError(f"a training of the certificate failed: {err.strip()[-600:]}", hint="does `train` run?")
        return True

    def kill(self, name: str, place: str, at: int, share: float) -> int | None:
        """Kill a child at a place, after a share (0 to 1) of an update's time when it is inside one.

        Returns:
            The update it was in; None when it refuses its state.
        """
        child = self._start(name, place, at)
        assert child.stdout is not None
        line = child.stdout.readline()
        if place == "inside" and line.startswith("inside"):
            time.sleep(share * self._seconds_of_update())
        child.kill()
        _, err = child.communicate()
        if line.startswith("refused"):
            self.refused = _refusal(line)
            return None
        if not line:
            raise StageError(f"the certificate found nothing to kill {place}: {err.strip()[-600:]}", hint="report this")
        return int(line.split()[1])

    def _start(self, name: str, place: str, at: int) -> subprocess.Popen[str]:
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        resume = last_state(folder / "checkpoints") is not None
        if not resume:
            (folder / "log.jsonl").unlink(missing_ok=True)
        request = {"run": str(self.run.root), "folder": str(folder), "settings": str(self.work / "settings.toml")}
        request |= {"resume": resume, "until": self.total, "place": place, "at": at}
        file = self.work / f"{name}.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        self.say(f"{name}: {'resuming' if resume else 'training'}{f' until {place} of update {at}' if place else ''}")
        words = [sys.executable, "-m", "mlx_sentis.training.certificate_child", str(file)]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = for_children(os.environ) | os.environ | {"PYTHONPATH": paths}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, env=environment, text=True, **pipes)  # type: ignore[call-overload]

    def _seconds_of_update(self) -> float:
        steps = read_log(self.work / "whole" / "log.jsonl").steps
        return float(np.median([step["seconds"] for step in steps]))


def _refusal(said: str) -> str:
    return json.loads(said.removeprefix("refused "))
