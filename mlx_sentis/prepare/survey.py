"""The first reading of a source: every row is looked at once, so that all that is wrong is told before any work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from mlx_sentis.prepare.clusters import Clusters, find_clusters
from mlx_sentis.prepare.formats.columns import read_map
from mlx_sentis.prepare.index import RowIndex, place_of, text_number
from mlx_sentis.prepare.languages import Languages
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sanity import Sanity
from mlx_sentis.prepare.sources import SPLITS, Fault, Source, bad_rows, open_source
from mlx_sentis.prepare.splits import check_no_leak, cut, shares_of
from mlx_sentis.templates import TEMPLATE_HINT
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, counted
from weights_bridge.settings import DataSettings

LISTED = 1000  # bad rows that are listed one by one; all are counted
Say = Callable[[str], None]


def silent(text: str) -> None:
    """Say nothing."""


@dataclass
class LeftOut:
    """Rows that are not used, by file and with reasons.

    Attributes:
        by_file: file to how many.
        listed: the first `LISTED` of them.
    """

    by_file: Counter[str] = field(default_factory=Counter)
    listed: list[Fault] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.by_file.total()

    def add(self, fault: Fault) -> None:
        self.by_file[fault.source.rpartition(":")[0]] += 1
        if len(self.listed) < LISTED:
            self.listed.append(fault)

    def as_json(self) -> dict[str, Any]:
        listed = [{"source": place_of(fault.source), "reason": fault.reason} for fault in self.listed]
        return {"count": self.total, "by_file": {place_of(k): v for k, v in self.by_file.items()}, "listed": listed}


@dataclass
class Survey:
    """What the first reading found.

    Attributes:
        source: where the rows are read from again.
        index: a record per good row, in reading order.
        splits: [rows] the split of each, a place in `SPLITS`.
        clusters: rows that say almost the same.
        bad: rows that could not be read, with `skip_bad`.
        sanity: signs of a wrong mapping or a damaged text.
        languages: scripts and languages of a sample.
        wanted: the splits that were given or have a share, in the fixed order; each gets a file.
        first_conversation: `file:line` of the first row that a chat template frames, empty for plain texts alone.
        notes: what the cut has to say.
    """

    source: Source
    index: RowIndex
    splits: Array
    clusters: Clusters
    bad: LeftOut
    sanity: Sanity
    languages: Languages
    wanted: list[str]
    first_conversation: str
    notes: list[str]

    def rows(self, *, bar: bool = False) -> Iterator[Row]:
        """Yield the good rows again, in the same order.

        Raises:
            StageError: the files are not what they were.
        """
        texts, number = self.index.texts, 0
        for row in progress(self._again(), "preparing", bar, len(self.index)):
            if number >= len(texts) or text_number(self.index.seed, row.user_text) != int(texts[number]):
                raise _changed(row.source)
            number += 1
            yield row
        if number != len(texts):
            raise _changed(self.source.name)

    def _again(self) -> Iterator[Row]:
        for split in self.source.files:
            yield from (row for row in self.source.rows(split) if isinstance(row, Row))

    def require_template(self, recipe: Mapping[str, Any]) -> None:
        """Refuse conversations for a model that has no chat template.

        Raises:
            StageError: the first of them is named.
        """
        if self.first_conversation and recipe["template"]["sha256"] is None:
            what = f"{self.first_conversation}: a conversation, and {recipe['model']['path']} has no chat template"
            raise StageError(what, hint=f"{TEMPLATE_HINT}; plain texts need none")

    def counts(self) -> dict[str, int]:
        """Return split to its number of rows, in the fixed order."""
        found = np.bincount(self.splits, minlength=len(SPLITS)).tolist()
        return {split: found[at] for at, split in enumerate(SPLITS)}


def _changed(where: str) -> StageError:
    return StageError(f"{where}: changed while it was being read", hint="run the stage again when nothing writes to it")


def progress(rows: Iterable[Any], what: str, bar: bool, total: int | None = None) -> Iterable[Any]:
    """Return the rows, with a progress bar on stderr where one is wanted and somebody can see it."""
    return tqdm(rows, desc=what, total=total, unit="row", disable=None if bar else True)


@contextmanager
def surveyed(
    source: str | Path,
    style: str,
    settings: DataSettings,
    scratch: Path,
    *,
    say: Say = silent,
    bar: bool = False,
    is_cut: bool = True,
) -> Iterator[Survey]:
    """Read every row of a source, cut the splits that it does not bring, and yield what was found.

    Args:
        source: a file, a folder with one file per split, or a shipped set's name.
        style: the recipe's `tools`.
        settings: how the data is shaped.
        scratch: an existing folder for what the index keeps on disk while it is used.
        say: hears about rows that are left out and texts in two splits.
        bar: show a progress bar.
        is_cut: without, the splits stay as they were given, and a text in two of them is no error.

    Raises:
        StageError: no such source, bad rows (all at once), a text in two splits, too few rows to cut.
    """
    shares = shares_of(settings) if is_cut else {}
    opened = open_source(source, style, format=settings.format, mapping=read_map(settings.map))
    with RowIndex(settings.seed, scratch, near=settings.near_duplicate < 1) as index:
        bad, sanity, languages, first_conversation = _read(opened, index, settings, bar)
        if bad.total:
            by_file = ", ".join(f"{file} {count}" for file, count in bad.by_file.items())
            say(f"{counted(bad.total, 'bad row')} left out: {by_file}")
        if is_cut:
            check_no_leak(index)
        clusters = find_clusters(index, settings.near_duplicate)
        missing = {split: share for split, share in shares.items() if split not in opened.files}
        splits = cut(index, clusters.labels, missing) if missing else index.splits
        _say_leaks(index, clusters, say)
        wanted = [split for split in SPLITS if split in opened.files or split in missing]
        notes = _cut_notes(missing, settings.seed)
        yield Survey(opened, index, splits, clusters, bad, sanity, languages, wanted, first_conversation, notes)


def _cut_notes(missing: Mapping[str, float], seed: int) -> list[str]:
    how = ", ".join(f"{split} {share:g}" for split, share in missing.items())
    return [f"cut from the training rows by seed {seed}, class by class: {how}"] if missing else []


def _read(opened: Source, index: RowIndex, settings: DataSettings, bar: bool) -> tuple[LeftOut, Sanity, Languages, str]:
    bad, faults, sanity, languages, first_conversation = LeftOut(), [], Sanity(), Languages(), ""
    for split in opened.files:
        for row in progress(opened.rows(split), f"reading {split}", bar):
            if isinstance(row, Row):
                sanity.add(row)
                languages.add(index.add(split, row), row.user_text)
                if not first_conversation and not row.is_plain_text:
                    first_conversation = row.source
            elif settings.skip_bad:
                bad.add(row)
            else:
                faults.append(row)
    if faults:
        raise bad_rows(opened.name, faults)
    if not len(index):
        raise StageError(f"{opened.name}: no row is left, all {bad.total} are bad", hint=str(bad.listed[0]))
    return bad, sanity, languages, first_conversation


def _say_leaks(index: RowIndex, clusters: Clusters, say: Say) -> None:
    if not clusters.leaks:
        return
    lines = []
    for pair in clusters.leaks[:3]:
        (source, text, _), (other, again, _) = index.shown(pair.second), index.shown(pair.first)
        lines.append(f"\n  {source} {text[:60]!r} and {other} {again[:60]!r}: {pair.similarity:.2f} alike")
    rest = f"\n  … and {len(clusters.leaks) - 3} more in data/report.md" if len(clusters.leaks) > 3 else ""
    say(f"{counted(len(clusters.leaks), 'row')} with a near-duplicate in an earlier split:{''.join(lines)}{rest}")
