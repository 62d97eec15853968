"""The onnx package's own 1,884 cases and its files: no crash, and every verdict as recorded."""

from __future__ import annotations

import json

import onnx
import pytest
from scan_corpus import GOLDEN, on_disk, verdict, verdicts


def recorded() -> dict[str, str]:
    held = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return {name: ids for ids, names in held["verdicts"].items() for name in names.split(" ")}


def test_the_golden_file_has_a_passport_and_every_model():
    passport = json.loads(GOLDEN.read_text(encoding="utf-8"))["passport"]
    assert passport["models"] == len(recorded()) > 1884 and passport["onnx"] and passport["date"]


def test_light_models_of_known_networks_have_their_recorded_verdicts():
    wanted = recorded()
    light = [path for path in on_disk() if path.parent.name == "light"]
    assert light
    assert {path.name: verdict(path) for path in light} == {
        path.name: wanted["/".join(path.parts[-3:])] for path in light
    }


@pytest.mark.slow
def test_every_case_of_the_onnx_package_has_its_recorded_verdict():
    held = json.loads(GOLDEN.read_text(encoding="utf-8"))["passport"]
    wanted, found = recorded(), verdicts()
    if onnx.__version__ == held["onnx"]:
        assert set(found) == set(wanted)
    differing = {name: (wanted[name], found[name]) for name in set(wanted) & set(found) if wanted[name] != found[name]}
    assert not differing
