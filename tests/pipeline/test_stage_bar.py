"""Stages that read rows show the bar that their command shows: on stderr, unless the run is quiet or told not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare import run as prepare_run
from parity import stages
from weights_bridge.settings import resolve


@pytest.mark.parametrize(
    ("progress", "quiet", "wanted"),
    [("stdout", "loud", True), ("stderr", "loud", True), ("off", "loud", False), ("stdout", "quiet", False)],
)
def test_prepare_and_the_first_look_have_a_bar(
    tmp_path: Path, toy_model: Any, monkeypatch: pytest.MonkeyPatch, progress: str, quiet: str, wanted: bool
) -> None:
    resolve(overrides=[f"model.name={toy_model('llama')}"]).write(tmp_path / "config.toml")
    seen: list[bool] = []

    def prepare(*_: Any, bar: bool = False, **__: Any) -> dict[str, Any]:
        seen.append(bar)
        return {"splits": {}}

    def look(*_: Any, bar: bool = False, **__: Any) -> dict[str, int]:
        seen.append(bar)
        return {"train": 99}

    monkeypatch.setattr(prepare_run, "run_prepare", prepare)
    monkeypatch.setattr(prepare_run, "look_at_data", look)
    assert stages.main("prepare", str(tmp_path), progress, quiet) == 0
    assert stages.main("recipe", str(tmp_path), progress, quiet) == 0
    assert seen == [wanted, wanted]
