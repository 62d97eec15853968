"""Several processes that train one adapter together: each takes its share of every batch, gradients are added up.

MLX's distributed engine carries the numbers. A process that is alone opens no connection, and every method answers at
once with what it was given: a plain run computes what it always did, to the bit.

All processes must make the same calls in the same order. So a block that may fail in one of them stands in
`together()`, which communicates at its end only and lets it fail in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map

from mlx_sentis.launch import backend_of
from mlx_sentis.training.memory import is_out_of_memory
from weights_bridge.compare import Array
from weights_bridge.errors import StageError

Tree = TypeVar("Tree")
FINE, MEMORY, OTHER = 0, 1, 2  # how a block ended


class LostProcessError(StageError):
    """Another process is gone; nothing can be computed together any more."""


class Ranks:
    """The processes of a training.

    Args:
        group: MLX's; None for a process that is alone.

    Attributes:
        rank: of this process, from 0. The first one writes and speaks for all.
        size: how many there are.
        lost: another one is gone; from then on this process acts as if it were alone.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank = group.rank() if group else 0
        self.size = group.size() if group else 1
        self.lost = False

    @property
    def alone(self) -> bool:
        return self.size == 1 or self.lost

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, figures: Array) -> Array:
        """Return everybody's array, [size, …], bit by bit.

        Args:
            figures: of the same shape and type in every process.

        Raises:
            LostProcessError: another process is gone.
        """
        if self.alone:
            return figures[None]
        own = mx.array(np.frombuffer(np.ascontiguousarray(figures).tobytes(), np.uint8))
        with self._connected():
            found = mx.distributed.all_gather(own[None], group=self.group)
            mx.eval(found)
        return np.frombuffer(np.array(found).tobytes(), figures.dtype).reshape(self.size, *figures.shape)

    def added(self, figures: Array) -> Array:
        """Return the sum of everybody's array, in the order of ranks."""
        return self.gather(figures).sum(axis=0)

    def highest(self, figures: Array) -> Array:
        """Return the elementwise highest of everybody's array."""
        return self.gather(figures).max(axis=0)

    def summed(self, gradients: Tree) -> Tree:
        """Return the sum of everybody's tree of evaluated arrays.

        Evaluated, because two processes with other passes would reach their sums in another order.
        """
        if self.alone:
            return gradients
        with self._connected():
            mean = nn.average_gradients(gradients, self.group)
            total = tree_map(lambda array: array * self.size, mean)
            mx.eval(total)
        return total

    def text_of(self, text: str, rank: int = 0) -> str:
        """Return the text of one process, in all of them."""
        if self.alone:
            return text
        own = np.frombuffer(text.encode(), np.uint8)
        lengths = self.gather(np.array([own.size]))[:, 0]
        page = np.zeros(int(lengths.max()), np.uint8)
        page[: own.size] = own
        return self.gather(page)[rank][: lengths[rank]].tobytes().decode()

    def tree_of_first(self, tree: Tree) -> Tree:
        """Return the first process's arrays, in all of them, bit by bit."""
        if self.alone:
            return tree

        def taken(array: mx.array) -> mx.array:
            flat = array.reshape(-1).view(mx.uint8)  # integers: a sum with zeros keeps −0 and NaN
            sent = mx.distributed.all_sum(flat if self.first else mx.zeros_like(flat), group=self.group)
            mx.eval(sent)
            return sent.view(array.dtype).reshape(array.shape)

        with self._connected():
            return tree_map(taken, tree)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block that communicates nothing; where it fails in one process, it fails in all.

        Raises:
            MemoryError: memory ran out in another process.
            StageError: another process failed in another way; with its words.
        """
        if self.alone:
            yield
            return
        fault: Exception | None = None
        try:
            yield
        except Exception as error:
            fault = error
        ends = self.gather(np.array([_end(fault)]))[:, 0]
        if not ends.any():
            return
        who = int(np.flatnonzero(ends)[0])
        words = json.loads(self.text_of(json.dumps(_words(fault)), who))
        if fault is not None:
            raise fault
        where = f"process {who} of {self.size}: {words['message']}"
        raise MemoryError(where) if ends[who] == MEMORY else StageError(where, hint=words["hint"])

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self.lost = True
            hint = "look above for what that process said; `train --resume` with as many processes goes on"
            raise LostProcessError(f"another process of this training is gone ({error})", hint=hint) from error


def _end(fault: Exception | None) -> int:
    if fault is None:
        return FINE
    return MEMORY if is_out_of_memory(fault) else OTHER


def _words(fault: Exception | None) -> dict[str, str]:
    if isinstance(fault, StageError):
        return {"message": fault.message, "hint": fault.hint}
    return {"message": f"{type(fault).__name__}: {fault}", "hint": "its traceback stands above"}


ALONE = Ranks()


def join() -> Ranks:
    """Return the processes that were launched together with this one; no connection is opened for one that is alone.

    Raises:
        StageError: this MLX has not the backend, or the others are not there.
    """
    backend = backend_of()
    if not backend:
        return ALONE
    try:
        return Ranks(mx.distributed.init(strict=True, backend=backend))
    except RuntimeError as error:
        hint = "start all processes at once, with `mlx.launch`; `--backend ring` needs nothing else"
        raise StageError(f"cannot join the other processes over {backend}: {error}", hint=hint) from error
