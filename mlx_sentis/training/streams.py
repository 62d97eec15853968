"""Passes side by side on the CPU: one MLX stream per core, each with a BLAS of one thread.

MLX's CPU backend computes everything but matrix products on one thread: exp, sums and products of a step leave all
other cores idle, and the BLAS's helpers wait for the next product. With a stream per core each has passes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import mlx.core as mx

from mlx_sentis.blas import set_threads, usable_cores

MOST = 4  # streams; more would cut the rows of a batch into passes too small for the matrix products


def side_by_side(wanted: int | None = None) -> int:
    """Return how many streams to take: one on Metal, which fills itself, else those wanted or one per usable core."""
    if mx.default_device() == mx.gpu:
        return 1
    return wanted or max(1, min(MOST, usable_cores()))


@contextmanager
def on_stream(number: int) -> Iterator[None]:
    """Build graphs for one of the streams; 0 is the default one."""
    if number == 0:
        yield
        return
    with mx.stream(_stream(number)):
        yield


@cache
def _stream(number: int) -> mx.Stream:
    set_threads(1)  # one thread per product: the streams keep the cores busy
    return mx.new_stream(mx.cpu)
