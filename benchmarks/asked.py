"""What the command line asked of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REAL_MODEL, TOY_MODEL = "smollm2-135m", "toy-llama"


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Asked:
    """Options of `bench`.

    Attributes:
        model: a catalogue name, a directory or a hub id; None takes each benchmark's own default.
        runs: counted runs after the warm-up; None takes each benchmark's own default.
        rows: training rows in a step, or rows to prepare; None takes each benchmark's own default.
        run: a run folder, for `demo`, `parity` and `emulator`.
        full: train: the whole table; export: all layers; bridge: the whole curve.
        case: train: one case only.
        out: train: where JSON and picture go.
        say: hears what is being measured.
        optimum_python: export: an interpreter that has optimum-onnx; empty leaves it out.
    """

    model: str | None = None
    runs: int | None = None
    rows: int | None = None
    run: Path | None = None
    full: bool = False
    case: str | None = None
    out: Path | None = None
    say: Callable[[str], None] = silent
    optimum_python: str = ""
