"""A fast BLAS under MLX on Linux, loaded before MLX is.

The `mlx-cpu` wheel links the reference BLAS: 4.9 GFLOP/s for a 1024³ fp32 product on 2 cores. A library that
exports the same symbols and is already loaded with RTLD_GLOBAL takes their place: torch's own
`libtorch_cpu.so` (MKL inside, nothing to install) or OpenBLAS, 74–152 GFLOP/s on the same cores. On macOS MLX
uses Accelerate and Metal and nothing of this is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# How far to both sides MLX looks when it puts operations in order; its own default is 20. The CPU scheduler runs about
# fifty operations ahead, counted over all streams: in a narrow order these are of one stream for long and the others
# wait. A SmolLM2-135M update takes 3.4 instead of 4.7 s on two cores, with the same peak of memory. The gradients of
# all adapters, a sum over passes each, are already some thousands side by side: with 1,000 a batch of eight passes ran
# on one core (37.7 s an update, with no limit 19.9 s).
TAPE_WIDTH = ("MLX_BFS_MAX_WIDTH", "1000000")


@dataclass(frozen=True)
class Blas:
    """Which BLAS MLX's CPU backend calls.

    Attributes:
        name: `accelerate`, `torch`, `openblas`, or `reference` (slow).
        library: the file loaded, empty when nothing was.
    """

    name: str
    library: str = ""

    @property
    def is_fast(self) -> bool:
        return self.name != "reference"


@cache
def activate() -> Blas:
    """Load a fast BLAS so that MLX binds to it; call before the first `import mlx.core`.

    Returns:
        The BLAS in use; `reference` when MLX was imported earlier or no library was found.
    """
    if sys.platform == "darwin":
        return Blas("accelerate")
    if "mlx.core" in sys.modules:  # its symbols are bound already
        return Blas("reference")
    os.environ.update(waiting(os.environ))  # read once, when OpenMP loads
    os.environ.setdefault(*TAPE_WIDTH)  # read once, at the first evaluation
    for name, library in _candidates():
        try:
            ctypes.CDLL(library, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError:
            continue
        return Blas(name, library)
    return Blas("reference")


def waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return how OpenMP threads should wait for each other, empty where the user has said so.

    MLX's CPU backend hands one product after another to the BLAS and computes everything else on one thread. A helper
    that sleeps at once is woken for every product: 12.3 s per SmolLM2-135M update on two idle cores, 7.3 s when it
    spins for some microseconds first, 6.7 s when it always spins. On two busy cores spinning steals from the very
    thread it waits for: 90 updates of toy-llama take 24 to 36 s this way, as asleep, and more than 500 s spinning.
    """
    said = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys()
    return {} if said else {"GOMP_SPINCOUNT": "2000"}


def for_children(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a process that computes should be started with, empty where the user has said so.

    Beside `waiting`: huge pages for what glibc's malloc gets from the kernel, which is read once, before the program
    begins. MLX's CPU backend returns every array at once and gets the next one from the kernel, page by page: 620,000
    faults for seven SmolLM2-135M updates, 60,000 with huge pages. Where memory is in one piece that is 1.2 s of the
    kernel's time out of 38; where it was fragmented an update took 5.1 to 6.4 s instead of 7.3 to 12.6.
    Other C libraries and glibc before 2.35 do not know the setting and leave it alone.
    """
    pages = {} if "GLIBC_TUNABLES" in environment else {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return waiting(environment) | (pages if sys.platform == "linux" else {})


def _candidates() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    spec = importlib.util.find_spec("torch")  # finds the folder without importing torch
    if spec is not None and spec.origin:
        library = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
        if library.is_file():
            found.append(("torch", str(library)))
    for name in ("libopenblas.so.0", ctypes.util.find_library("openblas")):
        if name:
            found.append(("openblas", name))
    return found


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(count: int) -> bool:
    """Let each product of the activated BLAS use that many threads; return whether it could be told.

    Args:
        count: threads.
    """
    blas = activate()
    if not blas.library:
        return False
    library = ctypes.CDLL(blas.library)
    names = {"torch": "mkl_serv_set_num_threads", "openblas": "openblas_set_num_threads"}
    setter = getattr(library, names[blas.name], None)
    if setter is None:
        return False
    setter(ctypes.c_int(count))
    return True
