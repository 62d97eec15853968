"""The probe pack: every class, fusion and dropped attribute has one, each can tell, the harness measures them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import call
from unity_engine import Engine, sentis_typed
from unity_kit import build_kit

from converters.facts import facts, versions
from converters.fusions import predict
from converters.ort_session import open_session
from converters.unity.kit import KitSettings, write_tools
from converters.unity.probes.pack import Made, inputs_of, probes_of, reference_of, write_probes
from converters.unity.probes.table import table
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.sentis_dump import fixture_sha256

MADE = list(probes_of("2.6"))
NAMES = [made.probe.name for made in MADE]


def of_kind(kind: str) -> set[str]:
    return {made.probe.of for made in MADE if made.probe.kind == kind}


def test_every_class_fusion_and_dropped_attribute_has_a_probe() -> None:
    assert of_kind("class") == {"A", "B", "C", "C'", "D", "E", "F", "G"}
    for fusion in facts("2.6")["fusions"]:
        assert any(name.startswith(fusion["name"]) for name in of_kind("fusion")), fusion["name"]
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("version", versions())
def test_no_attribute_that_a_version_drops_is_forgotten(version: str) -> None:
    asked, without = of_kind("attribute"), table()[1]
    for op, row in facts(version).operators.items():
        for attribute, harmless in row.get("ignores", {}).items():
            if harmless != "any" and f"{op}.{attribute}" not in asked:
                assert without.get(f"{op}.{attribute}"), f"{op}.{attribute}"


def computed(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path | None = None) -> list[np.ndarray]:
    return open_session(model.SerializeToString(), "off", folder=folder).run(None, inputs)


def without_attribute(made: Made) -> onnx.ModelProto:
    """Return a probe's model as a package sees it that drops the attribute (or, in class C, does)."""
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    op, _, attribute = "Gelu.approximate".partition(".") if made.probe.of == "C" else made.probe.of.partition(".")
    for node in model.graph.node:
        kept = [one for one in node.attribute if one.name != attribute]
        if node.op_type == op:
            assert len(kept) + 1 == len(node.attribute)
            del node.attribute[:]
            node.attribute.extend(kept)
    return model


TELL = [made for made in MADE if made.probe.kind == "attribute" or made.probe.of == "C"]
UNLIKE = {  # what dropping them does is no other attribute value of ONNX: the answer is told by hand
    "SpaceToDepth.mode": "ONNX has no such attribute: it is set to the one value that the importer expects",
}


@pytest.mark.parametrize("made", TELL, ids=lambda made: made.probe.name)
def test_a_probe_tells_whether_its_attribute_is_read(made: Made) -> None:
    if made.probe.of in UNLIKE or made.probe.reference:
        return  # the reference has no attribute at all: the next test holds it
    ((_, inputs),) = inputs_of(made).items()
    wanted = computed(made.model, inputs)
    try:
        found = computed(without_attribute(made), inputs)
    except StageError:
        found = []  # without the attribute it is no valid model: told as well
    equal = len(found) == len(wanted) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=1e-7, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )
    assert equal is made.probe.harmless


def test_old_broadcasting_is_told_from_that_of_numpy() -> None:
    for made in MADE:
        if made.probe.reference and made.probe.of.endswith(".axis"):
            ((_, inputs),) = inputs_of(made).items()
            (wanted,) = computed(reference_of(made), inputs)
            assert wanted.shape == (2, 8)
            with pytest.raises(ValueError, match="broadcast"):  # numpy would put w along the last axis
                inputs["x"] + inputs["w"]


@pytest.mark.parametrize("made", [one for one in MADE if one.probe.kind == "fusion"], ids=lambda made: made.probe.name)
def test_a_fusion_is_found_in_its_probe(made: Made) -> None:
    fused = [one.fusion for one in predict(made.model, "2.6").fused]
    assert made.probe.of.partition("-")[0] in fused, fused


def test_external_data_read_in_order_of_the_file_gives_other_numbers(tmp_path: Path) -> None:
    write_probes(tmp_path / "probes", "2.6")
    folder = tmp_path / "probes"
    model = onnx.load(folder / "class-d.onnx", load_external_data=False)
    with np.load(folder / "class-d--drawn.npz") as archive:
        x, right = archive["in::x"], archive["out::y"]
    u, w = np.arange(1, 9, dtype=np.float32), np.arange(1, 9, dtype=np.float32) * 10
    np.testing.assert_array_equal(right, x * u + w)
    raw = np.fromfile(folder / "class-d.bin", np.float32)
    first, second = raw[:8], raw[8:]  # what a reader takes that goes through the file initialiser by initialiser
    assert [tensor.name for tensor in model.graph.initializer] == ["u", "w"]
    assert np.abs(x * first + second - right).max() > 1


def test_the_pack_is_written_twice_alike_and_every_probe_has_a_reference(tmp_path: Path) -> None:
    for place in ("one", "two"):
        facts_of = write_probes(tmp_path / place, "2.6")
    assert facts_of == {"probes": len(MADE), "kinds": {"class": 8, "fusion": 29, "attribute": 34}}
    files = {file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file()}
    for file in files:
        one, two = (tmp_path / place / file for place in ("one", "two"))
        assert file.suffix == ".npz" or one.read_bytes() == two.read_bytes(), file
    index = read_json(tmp_path / "one" / "probes.json")
    assert [row["no_reference"] for row in index["probes"] if row["no_reference"]] == []
    assert sum((tmp_path / "one" / file).stat().st_size for file in files) < 500_000
    for name in (name for row in index["probes"] for name in row["fixtures"]):
        with np.load(tmp_path / "one" / name) as archive:
            assert all(np.isfinite(archive[key]).all() and archive[key].size for key in archive.files), name


@pytest.mark.slow
def test_the_harness_measures_the_whole_pack(tmp_path: Path, stubs: Path) -> None:
    kit = tmp_path / "Assets" / "Probe"
    write_tools(kit, KitSettings("MyGame.Probe", probes=True))
    built = build_kit(kit, stubs, tmp_path / "built", "MyGame.Probe")
    words = ["-mlxSentisDump", tmp_path / "dump", "-mlxSentisRuns", 1]
    code, said = Engine().ran(["mono", built.program("Harness"), *words], tmp_path)
    assert (code, said[-1]) == (0, "left 0 0"), said
    dump = read_json(tmp_path / "dump" / "dump.json")
    index = read_json(kit / "Probes~" / "probes.json")
    assert [model["file"] for model in dump["models"]] == [row["model"] for row in index["probes"]]
    for model, row in zip(dump["models"], index["probes"], strict=True):
        if not model["import"]["ok"]:
            assert row["of"].endswith((".axis", ".is_test"))  # opsets that ONNX Runtime has left behind
            continue
        assert len(model["runs"]) == len(row["fixtures"])
        for run, name in zip(model["runs"], row["fixtures"], strict=True):
            with np.load(kit / "Probes~" / name) as archive:
                tensors = {key: archive[key] for key in archive.files}
            inputs = {key[4:]: array for key, array in tensors.items() if key.startswith("in::")}
            assert run["fixture_sha256"] == fixture_sha256(inputs)
            for entry in run["outputs"]:
                wanted = sentis_typed(tensors[f"out::{entry['name']}"])
                found = np.fromfile(tmp_path / "dump" / entry["file"], wanted.dtype).reshape(entry["shape"])
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=row["name"])


def test_the_command_writes_probes_without_a_run(tmp_path: Path) -> None:
    found = call("unity", "--probes", "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "out" / "Probes~" / "inputs" / "fixtures.json").is_file()
    assert (tmp_path / "out" / "Editor" / "MlxSentis.Tools.Editor.asmdef").is_file()
