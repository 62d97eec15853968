"""A made sequence on disk: graph, sequence file, signal, and the reference from its equations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sequences import CHUNK, SPEC, STEPS, Made, weights, whole, write_graph


@pytest.fixture
def made(tmp_path: Path) -> Made:
    signal = np.random.default_rng(11).normal(0, 1, CHUNK * STEPS).astype(np.float32)
    reference = whole(signal, weights())
    np.savez(tmp_path / "reference.npz", **{"in::signal": signal, "out::y": reference})  # pyright: ignore
    (tmp_path / "made.toml").write_text(SPEC)
    return Made(tmp_path, write_graph(tmp_path / "made.onnx", weights()), tmp_path / "made.toml", signal, reference)


@pytest.fixture
def respelled(made: Made) -> Callable[..., Path]:
    """respelled("chunk = 8", "chunk = 6") -> the sequence file with a text replaced."""

    def write(*pairs: Any) -> Path:
        text = SPEC
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            assert text.count(old) == 1
            text = text.replace(old, new)
        path = made.folder / "respelled.toml"
        path.write_text(text)
        return path

    return write
