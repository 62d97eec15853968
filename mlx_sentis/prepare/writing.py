"""The second reading: rows are rendered, masked and written to their split's file as they come."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.prepare.contract import Samples
from mlx_sentis.prepare.marks import MarkTally
from mlx_sentis.prepare.rows import Row, calls_of
from mlx_sentis.prepare.sources import SPLITS, Fault
from mlx_sentis.prepare.splits import TRAIN
from mlx_sentis.prepare.survey import LeftOut, Survey
from mlx_sentis.prepare.too_long import Dropped
from mlx_sentis.prepare.workers import Batch, Line, common_prefix
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once, counted

ROW_HINT = "mend the rows, or leave them out with --skip-bad (of `run`: --set data.skip_bad=true)"
LENGTH_HINT = "; data.too_long says what becomes of rows over data.max_tokens (refuse, drop, left)"


@dataclass
class Tally:
    """What was counted while rows were written.

    Attributes:
        tokens: [rows] the tokens of each row of the survey; 0 where it was not written.
        trained: split to trained tokens.
        edited_turns: assistant turns that lost text in rendering.
        cut_rows: rows whose prompt was cut to fit.
        prefix: the ids that all rows begin with; None without rows.
        bad: rows that cannot be trained, with `skip_bad`.
        dropped: rows left out for their length.
        marks: where the template's own marks differ from the spans.
        samples: rows for the prompt contract.
        tools: every tool once, in order of appearance.
        files: split to the SHA-256 of its file.
        called: names of the tools that some turn of a row calls.
        several_calls: held-out rows whose last turn makes several calls.
    """

    tokens: Array
    trained: dict[str, int] = field(default_factory=dict)
    edited_turns: int = 0
    cut_rows: int = 0
    prefix: list[int] | None = None
    bad: LeftOut = field(default_factory=LeftOut)
    dropped: LeftOut = field(default_factory=LeftOut)
    marks: MarkTally = field(default_factory=MarkTally)
    samples: Samples = field(default_factory=Samples)
    tools: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    several_calls: int = 0


class SplitFile:
    """One split's file: lines go in, their SHA-256 and number are known at the end."""

    def __init__(self, split: str, path: Path) -> None:
        self.split, self.rows, self._digest = split, 0, hashlib.sha256()
        self._file = path.open("wb")

    def __enter__(self) -> SplitFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        self.rows += 1
        data = line.named(f"{self.split}-{self.rows:04d}")
        self._digest.update(data)
        self._file.write(data)

    def finish(self) -> str:
        """Bring everything to the disk and return the hash."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()


def write_splits(batches: Iterable[tuple[list[Row], Batch]], survey: Survey, folder: Path, *, skip_bad: bool) -> Tally:
    """Write `{split}.jsonl` of every split that was given or asked for.

    Args:
        batches: all rows of the survey in its order, with what became of them.
        survey: the first reading.
        folder: an existing folder.
        skip_bad: leave out rows that cannot be trained, instead of refusing all.

    Raises:
        StageError: rows that cannot be trained, all at once; no training row is left.
    """
    writer = _Writer(survey, skip_bad)
    with ExitStack() as stack:
        paths = {split: folder / f"{split}.jsonl" for split in survey.wanted}
        files = {split: stack.enter_context(SplitFile(split, path)) for split, path in paths.items()}
        for rows, batch in batches:
            writer.take(rows, batch, files)
        writer.raise_faults()
        writer.require_rows(files)
        writer.tally.files = {split: file.finish() for split, file in files.items()}
    writer.tally.tools = list(writer.tools.values())
    return writer.tally


class _Writer:
    def __init__(self, survey: Survey, skip_bad: bool) -> None:
        self.survey, self.skip_bad = survey, skip_bad
        self.tally = Tally(np.zeros(len(survey.index), np.uint32))
        self.tools: dict[str, dict[str, Any]] = {}
        self.number = 0
        self._faults: list[str] = []
        self._spare = Samples()  # rows that were cut; they show a prompt only where there is no other
        self._known: list[dict[str, Any]] | None = None

    def take(self, rows: list[Row], batch: Batch, files: Mapping[str, SplitFile]) -> None:
        tally = self.tally
        for row, outcome in zip(rows, batch.outcomes, strict=True):
            place = int(self.survey.splits[self.number])
            if isinstance(outcome, Line):
                files[SPLITS[place]].write(outcome)
                self._count(row, outcome, place)
            elif isinstance(outcome, Dropped):
                tally.dropped.add(Fault(outcome.source, outcome.reason))
            elif self.skip_bad:
                tally.bad.add(Fault(row.source, outcome.removeprefix(f"{row.source}: ")))
            else:
                self._faults.append(outcome)
            self.number += 1
        if batch.prefix is not None:
            tally.prefix = batch.prefix if tally.prefix is None else common_prefix(tally.prefix, batch.prefix)
        tally.marks.rows += batch.marks.rows
        tally.marks.kinds.update(batch.marks.kinds)
        tally.marks.first = batch.marks.first | tally.marks.first

    def _count(self, row: Row, line: Line, place: int) -> None:
        tally = self.tally
        tally.tokens[self.number] = line.tokens
        tally.trained[SPLITS[place]] = tally.trained.get(SPLITS[place], 0) + line.trained_tokens
        tally.edited_turns += line.edited_turns
        tally.cut_rows += line.cut_tokens > 0
        tally.called.update(call.name for message in row.messages for call in calls_of(message))
        tally.several_calls += SPLITS[place] == "holdout" and len(row.calls) > 1
        if place == TRAIN:
            (self._spare if line.cut_tokens else tally.samples).see(row)
        if row.tools is not self._known:  # rows of one file share their list
            self._known = row.tools
            self.tools |= {json.dumps(tool, sort_keys=True): tool for tool in row.tools}

    def raise_faults(self) -> None:
        """Raise what is wrong with the rows.

        Raises:
            StageError: rows that cannot be trained, or no training row is left.
        """
        if self._faults:
            hint = ROW_HINT + (LENGTH_HINT if any("data.max_tokens" in fault for fault in self._faults) else "")
            what = f"{counted(len(self._faults), 'row')} cannot be trained, nothing was written:"
            raise all_at_once(what, self._faults, hint=hint)
        if not self.tally.samples.found:
            self.tally.samples = self._spare
        if not self.tally.samples.found:
            gone = [*self.tally.bad.listed, *self.tally.dropped.listed]
            hint = f"the first that was left out: {gone[0]}" if gone else "add rows"
            raise StageError(f"{self.survey.source.name}: no training row is left, nothing was written", hint=hint)

    def require_rows(self, files: Mapping[str, SplitFile]) -> None:
        """Require that no split lost all its rows: it would be missing where it is needed.

        Raises:
            StageError: one did.
        """
        counts = self.survey.counts()
        empty = [split for split, file in files.items() if not file.rows and counts[split]]
        if empty:
            gone = [*self.tally.bad.listed, *self.tally.dropped.listed]
            hint = f"the first that was left out: {gone[0]}"
            hint += (
                "; a higher data.max_tokens keeps long rows, data.too_long=left cuts them"
                if self.tally.dropped.total
                else ""
            )
            raise StageError(f"nothing left for {', '.join(empty)}: all of its rows were left out", hint=hint)
