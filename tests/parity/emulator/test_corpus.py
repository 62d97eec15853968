"""The onnx package's node cases under the emulator, and the conformance table made of them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
from emulator_cases import own_cases
from emulator_corpus import GOLDEN, verdict, verdicts

from converters.facts import facts
from parity.emulator import page
from parity.emulator.operators import FORMS

PAGE = Path(__file__).parents[3] / "docs" / "sentis-emulator.md"


def golden() -> dict:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def recorded() -> dict[str, str]:
    return {name: told for told, names in golden()["verdicts"].items() for name in names.split(" ")}


def test_every_operator_that_sentis_imports_has_a_form():
    for version in ("2.4", "2.5", "2.6"):
        assert set(facts(version).operators) <= set(FORMS)


def test_no_case_differs_without_a_rule_that_says_so():
    assert golden()["passport"]["cases"] == len(recorded()) > 1100
    assert not [name for name, told in recorded().items() if told.startswith("differs")]


def test_at_least_120_operators_are_emulated_or_shown_identical():
    found = {row.op: row.status for row in page.rows(golden(), "2.6")}
    shown = [op for op, status in found.items() if status in ("emulated", "identical")]
    assert len(shown) >= 120
    assert not [op for op, status in found.items() if status == "not shown"]


def test_an_identical_operator_has_an_equal_case_for_each_attribute_it_reads():
    for row in page.rows(golden(), "2.6"):
        assert row.form.how != "identical" or (row.counts["equal"] and not row.open), row.op


def test_an_operator_without_cases_is_not_said_to_be_identical():
    held = golden()
    del held["operators"]["Concat"]
    assert next(row.status for row in page.rows(held, "2.6") if row.op == "Concat") == "not shown"
    held = golden()
    held["operators"]["Conv"]["attributes"].remove("dilations")
    assert next(row.status for row in page.rows(held, "2.6") if row.op == "Conv") == "not shown"


def test_the_page_is_the_one_that_would_be_generated():
    assert PAGE.read_text(encoding="utf-8") == page.page(golden()), "run `make readme`"


UNLIKE = {"own_dft"}  # equal to a tolerance of its own: angles in float32
WITHOUT = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
WITHOUT |= {"MelWeightMatrix", "Swish"}  # nothing is predicted; ONNX Runtime does not have it


def test_a_case_of_every_operator_gives_what_onnx_runtime_gives(tmp_path: Path):
    seen = set[str]()
    for name, model, inputs, outputs in own_cases():
        told = verdict(model, inputs, outputs, tmp_path)
        assert told == "equal" or (name in UNLIKE and told.startswith("deviates")), f"{name}: {told}"
        seen.add(model.graph.node[0].op_type)
    assert set(facts("2.6").operators) - seen == WITHOUT


@pytest.mark.slow
def test_every_case_has_its_recorded_verdict():
    passport = golden()["passport"]
    found, _ = verdicts()
    assert not [name for name, told in found.items() if told.startswith("differs")]
    if (passport["onnx"], passport["onnxruntime"]) == (onnx.__version__, onnxruntime.__version__):
        assert found == recorded()
