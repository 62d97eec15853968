from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from converters.finding import Finding
from converters.scan import scan


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[..., list[Finding]]:
    """Return what scans a model in memory, by way of a file."""

    def run(model: onnx.ModelProto, sentis: str = "2.6", *, notes: bool = False) -> list[Finding]:
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return scan(path, sentis, notes=notes)

    return run
