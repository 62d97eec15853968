"""Real ONNX files: what `scan` and `fix` make of each is as recorded, and the page shows the record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import onnxruntime
import pytest
from real_files import CASES, GOLDEN, PAGE, page, tried

MODELS = Path(os.environ.get("MLX_SENTIS_MODELS", ""))  # their packages are no dependency of this one
RECORD = json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_page_shows_the_record_and_every_file_has_a_verdict_with_its_reason():
    assert PAGE.read_text(encoding="utf-8") == page(RECORD), "run `MLX_SENTIS_MODELS=DIR python tests/real_files.py`"
    assert [row["path"] for row in RECORD["files"]] == [case.path for case in CASES]
    for row in RECORD["files"]:
        if row["verdict"] in ("clean", "fixed"):
            assert row["after"] == {} and bool(row["before"]) == (row["verdict"] == "fixed"), row["path"]
        else:
            assert row.get("reason") or row["reasons"], row["path"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: f"{number}-{Path(CASES[number].path).stem}")
def test_a_real_file_has_its_recorded_verdict(tmp_path, number):
    if not (MODELS / CASES[number].path).is_file():
        pytest.skip(f"MLX_SENTIS_MODELS names no folder with {CASES[number].path}")
    recorded, found = RECORD["files"][number], tried(CASES[number], MODELS, tmp_path)
    assert found["sha256"] == recorded["sha256"]
    assert (found["verdict"], found["before"]) == (recorded["verdict"], recorded["before"])
    if onnxruntime.__version__ == RECORD["passport"]["onnxruntime"]:
        assert found.get("after") == recorded.get("after")
        counts = [{name: row[0] for name, row in one.get("passes", {}).items()} for one in (found, recorded)]
        assert counts[0] == counts[1]
