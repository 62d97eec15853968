"""Each silent deviation shows on a made input, says its rule, and is cured by the pass of `fix` that claims it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulator_deviations import NOT_CURED, NOT_SHOWN, SHOWN, Shown
from onnx import helper, numpy_helper

from converters.facts import facts, versions
from converters.passes import PASSES
from converters.passes.base import Context
from converters.passes.unmended import why_not
from converters.scan import scan
from parity.emulator import Prediction
from parity.emulator.emulation import Emulation
from parity.emulator.node import as_kind
from parity.runners.sentis import onnx_outputs
from weights_bridge.errors import StageError

RULES = [pytest.param(rule, marks=pytest.mark.slow) if rule == "RANGE.BIG" else rule for rule in sorted(SHOWN)]
SILENT = ("silent_deviation", "import_warning")


def rules_that_deviate() -> set[str]:
    """Return the ids of all rules by which a model imports and computes something else, in any version."""
    import json
    from importlib import resources

    found: set[str] = set()
    for version in versions():
        data = json.loads(resources.files("converters").joinpath("sentis", f"{version}.json").read_text("utf-8"))
        for row in (*data.get("rules", ()), *data.get("rules_added", ())):
            if row["effect"] in SILENT:
                found |= {row["id"].replace("{OP}", op.upper()) for op in row["ops"]}
        found |= {row["id"] for row in data.get("model_rules", ()) if row["severity"] == "deviation"}
    return found


def test_every_rule_is_shown_or_has_its_reason():
    wanted = rules_that_deviate()
    assert len(wanted) >= 88
    assert set(SHOWN) | set(NOT_SHOWN) == wanted
    assert not set(SHOWN) & set(NOT_SHOWN)
    assert all(len(why) > 20 for why in NOT_SHOWN.values())


def written(case: Shown, folder: Path) -> Path:
    """Write a case's model."""
    held = [numpy_helper.from_array(array, name) for name, array in case.constants.items()]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in case.inputs.items()
    ]
    graph = helper.make_graph(case.nodes, "made", given, [onnx.ValueInfoProto(name="y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8)
    if any(one.domain for one in case.nodes):
        model.opset_import.add(domain="com.microsoft", version=1)
    if case.beside is not None:
        case.beside(model, folder)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def reference_of(case: Shown, path: Path) -> np.ndarray:
    """Return what ONNX says, as Sentis would hold it."""
    if case.reference is not None:
        return as_kind(np.asarray(case.reference))
    return onnx_outputs(path, case.inputs)["y"]


def predicted(case: Shown, path: Path) -> Prediction:
    return Emulation(path, case.version, any_opset=case.any_opset).predict(case.inputs)


def close(found: Prediction, wanted: np.ndarray) -> bool:
    """Tell whether a prediction is what ONNX says, up to rounding."""
    got = found.outputs.get("y")
    if got is None or got.shape != wanted.shape:
        return False
    if got.dtype.kind == wanted.dtype.kind == "i":
        return bool((got == wanted).all())
    return bool(np.allclose(got, wanted, rtol=3e-5, atol=3e-6, equal_nan=True))


@pytest.mark.parametrize("rule", RULES)
def test_the_deviation_shows_and_says_its_rule(rule: str, tmp_path: Path):
    case = SHOWN[rule]
    path = written(case, tmp_path)
    found = predicted(case, path)
    assert found.verdict == "predicted", found.reason
    assert not close(found, reference_of(case, path))
    told = {one.rule for one in found.deviations}
    assert rule in told or (rule == "CAST.FP16" and any("half precision" in note for note in found.notes))
    source = facts(case.version).rules[rule]
    for one in found.deviations:
        assert one.source and one.confidence
        assert one.rule != rule or ("not verified" in one.confidence) != source.verified


@pytest.mark.parametrize("rule", [rule for rule in sorted(SHOWN) if SHOWN[rule].any_opset])
def test_an_opset_that_the_version_does_not_document_is_not_predicted_unless_asked_for(rule: str, tmp_path: Path):
    case = SHOWN[rule]
    found = predicted(replace(case, any_opset=False), written(case, tmp_path))
    assert found.verdict == "not predicted" and "OPSET.WINDOW" in found.reason


@pytest.mark.parametrize("rule", RULES)
def test_the_pass_that_claims_it_cures_it(rule: str, tmp_path: Path):
    case = SHOWN[rule]
    path = written(case, tmp_path)
    wanted = reference_of(case, path)
    names = [name for one in scan(path, case.version, notes=True) if one.id == rule for name in one.passes]
    if not names:
        assert why_not(rule) or rule == "CAST.FP16", "neither a pass nor a reason"  # fewer roundings are no fault
        return
    model = onnx.load(str(path), load_external_data=False)
    fixed = tmp_path / "fixed.onnx"
    for _ in range(2):  # what it leads to is mended as well, as `fix` does
        for name in dict.fromkeys(names):
            PASSES[name].run(model, Context(tmp_path, case.version, growth_bytes=1 << 24))
        fixed.write_bytes(model.SerializeToString())
        names = [name for one in scan(fixed, case.version) if one.blocking for name in one.passes]
    given = {value.name: case.inputs[value.name] for value in model.graph.input if value.name in case.inputs}
    try:
        found = predicted(replace(case, inputs=given), fixed)
    except StageError as error:
        raise AssertionError(error.message) from None
    assert found.verdict == "predicted", found.reason
    assert close(found, wanted) != (rule in NOT_CURED)
