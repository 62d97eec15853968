"""`export`, `scan` and `bridge` take embedded models by name, as every command that wants a model does."""

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


def test_bridge_takes_an_embedded_models_name_as_it_takes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    done = call("bridge", "toy-llama", "--to", "mlx", "--out", "mlx")
    assert done.exit_code == 0, done.output
    assert "bit by bit" in done.stdout and (tmp_path / "mlx" / "model.safetensors").is_file()
