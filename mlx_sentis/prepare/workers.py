"""Rendering, tokenising and masking on all cores: batches of rows go out to processes, and come back in order.

Workers are started by `spawn` on every system, so none inherits threads or half-used libraries. Few rows stay in this
process: a worker takes seconds to start.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.marks import MarkTally
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.too_long import Dropped
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError
from weights_bridge.settings import DataSettings

ROWS_AT_ONCE = 256
ROWS_FOR_WORKERS = 4096  # from so many rows on, processes are worth their start
MOST_WORKERS = 8
WAITING_BATCHES = 2  # per worker: one it works on, one it finds when it is done
NO_ID = b'{"id": ""'  # how a line begins before its number is known
MEMORY_HINT = "close other programs: memory ran out?"


@dataclass(frozen=True)
class Line:
    """One prepared row as bytes of its file.

    Attributes:
        text: the line without its end; it begins with `NO_ID`.
        tokens: how many the row has.
        trained_tokens: how many of them are trained.
        edited_turns: assistant turns that lost text in rendering.
        cut_tokens: how many tokens of its prompt were cut away.
    """

    text: bytes
    tokens: int
    trained_tokens: int
    edited_turns: int
    cut_tokens: int

    def named(self, name: str) -> bytes:
        """Return the line with the row's name in it, and its end."""
        return b'{"id": ' + json.dumps(name).encode() + self.text[len(NO_ID) :] + b"\n"


@dataclass(frozen=True)
class Batch:
    """What became of some rows, in their order.

    Attributes:
        outcomes: per row its line, `Dropped` where it is left out for its length, or `file:line: reason` why it cannot
            be trained.
        prefix: the ids that all lines begin with; None without any line.
        marks: where the template's own marks differ from the spans.
    """

    outcomes: list[Line | Dropped | str]
    prefix: list[int] | None
    marks: MarkTally


@dataclass
class Preparer:
    """Renders, tokenises and masks rows.

    Attributes:
        tokenizer: from `load_tokenizer`.
        recipe: the model's recipe.
        settings: how the data is shaped.
    """

    tokenizer: Any
    recipe: dict[str, Any]
    settings: DataSettings = field(default_factory=DataSettings)

    def __call__(self, rows: Sequence[Row]) -> Batch:
        outcomes: list[Line | Dropped | str] = []
        prefix: list[int] | None = None
        settings, marks = self.settings, MarkTally()
        for row in prepared_rows(
            rows,
            self.tokenizer,
            self.recipe,
            train_turns=settings.train_turns,
            max_tokens=settings.max_tokens,
            too_long=settings.too_long,
        ):
            if isinstance(row, Prepared):
                prefix = row.ids if prefix is None else common_prefix(prefix, row.ids)
                marks.see(row)
                outcomes.append(_line(row))
            else:
                outcomes.append(row)
        return Batch(outcomes, prefix, marks)


def _line(row: Prepared) -> Line:
    text = json.dumps(row.as_json(""), ensure_ascii=False, allow_nan=False)
    return Line(text.encode(), len(row.ids), row.trained_tokens, row.edited_turns, row.cut_tokens)


def common_prefix(first: list[int], second: list[int]) -> list[int]:
    """Return the ids that both begin with."""
    if second[: len(first)] == first:
        return first
    differs = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(second))
    return first[:differs]


def workers_for(rows: int) -> int:
    """Return how many processes to start for so many rows; 0 is none, the rows stay in this one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if rows < ROWS_FOR_WORKERS or cores < 2 else min(cores, MOST_WORKERS)


def in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows a batch at a time."""
    rows = iter(rows)
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        yield batch


def prepared_batches(
    rows: Iterable[Row], preparer: Preparer, model: Path, template: Path | None, workers: int
) -> Generator[tuple[list[Row], Batch], None, None]:
    """Yield rows with what became of them, in order; few batches are in memory at any time.

    Args:
        rows: in reading order.
        preparer: does the work in this process.
        model: the model directory, from which each worker loads its own tokenizer.
        template: the Jinja file in place of the directory's own template.
        workers: processes to start; 0 is none.

    Raises:
        StageError: no row can be prepared with this model, or a worker was ended from outside.
    """
    if not workers:
        for batch in in_batches(rows):
            yield batch, preparer(batch)
        return
    context = multiprocessing.get_context("spawn")
    alive, ours = context.Pipe(duplex=False)
    arguments = (alive, model, template, preparer.recipe, asdict(preparer.settings))
    pool = ProcessPoolExecutor(workers, context, _start_worker, arguments)
    try:
        yield from _in_order(pool, in_batches(rows), workers * WAITING_BATCHES)
    except BrokenProcessPool as error:
        raise StageError("a process that prepares rows was ended from outside", hint=MEMORY_HINT) from error
    except BaseException:
        ours.close()  # nobody waits for what the workers have begun
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        alive.close()


def _in_order(
    pool: ProcessPoolExecutor, batches: Iterator[list[Row]], waiting: int
) -> Iterator[tuple[list[Row], Batch]]:
    underway: deque[tuple[list[Row], Future[Batch]]] = deque()
    for batch in batches:
        underway.append((batch, pool.submit(_work, batch)))
        if len(underway) > waiting:
            done, future = underway.popleft()
            yield done, future.result()
    for done, future in underway:
        yield done, future.result()


_preparer: Preparer | None = None  # a worker's own


def _start_worker(
    alive: Connection, model: Path, template: Path | None, recipe: dict[str, Any], settings: dict[str, Any]
) -> None:
    global _preparer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's to handle
    threading.Thread(target=_end_with_parent, args=[alive], daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each
    # transformers imports torch where it finds it: three seconds and 230 MB a process, for nothing
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]
    _preparer = Preparer(load_tokenizer(model, template=template), recipe, DataSettings(**settings))


def _end_with_parent(alive: Connection) -> None:
    """End this process as soon as the other end of a pipe is closed: by the first process, or by its end."""
    wait([alive])
    os._exit(1)


def _work(rows: list[Row]) -> Batch:
    assert _preparer is not None
    return _preparer(rows)
