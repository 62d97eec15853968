"""`export` and `scan` take embedded models by name, though the converters know paths only."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import call


def test_scan_takes_an_embedded_model_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path))
    result = call("scan", "toy-llama")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "models" / "toy-llama" / "config.json").is_file()


@pytest.mark.parametrize("words", [("export", "toy-lama", "--out", "x"), ("scan", "toy-lama")])
def test_an_unknown_model_is_one_line_with_the_nearest_name(words: tuple[str, ...]) -> None:
    result = call(*words)
    assert result.exit_code == 1
    assert "did you mean toy-llama?" in result.output
    assert "Traceback" not in result.output
