"""The onnx package's own cases: what `fix` writes gives the package's golden data, and every verdict is as recorded."""

from __future__ import annotations

import json

import onnx
import onnxruntime
import pytest
from fix_corpus import GOLDEN, verdicts


def recorded() -> dict[str, str]:
    held = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return {name: told for told, names in held["verdicts"].items() for name in names.split(" ")}


def test_the_golden_file_has_a_passport_and_no_wrong_result():
    passport = json.loads(GOLDEN.read_text(encoding="utf-8"))["passport"]
    assert passport["tried"] == len(recorded()) > 500 and passport["onnxruntime"]
    assert set(recorded().values()) <= {"clean", "clean when bound", "left", "mended in part"}


@pytest.mark.slow
def test_every_case_that_a_pass_could_mend_has_its_recorded_verdict():
    passport = json.loads(GOLDEN.read_text(encoding="utf-8"))["passport"]
    found = {name: told.split(":")[0] for name, told in verdicts().items()}
    assert "wrong" not in found.values() and "refused" not in found.values()
    if (passport["onnx"], passport["onnxruntime"]) == (onnx.__version__, onnxruntime.__version__):
        assert found == recorded()
