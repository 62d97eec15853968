"""The parity harness, compiled with Mono: what it dumps is what the runtime computed, and what goes wrong is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import call, edit_json
from unity_engine import Engine, sentis_typed
from unity_kit import build_kit

from converters.ort_session import open_session
from converters.unity.parity_inputs import HarnessModel, write_parity_inputs
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_dump import DUMP_SCHEMA, fixture_sha256

KINDS = {"float32": np.float32, "int32": np.int32}


@dataclass
class Dumped:
    """How a run of the harness ended: exit code, what it said, and the folder."""

    code: int
    said: list[str]
    folder: Path
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> dict[str, Any]:
        models = self.document.get("models", [])
        assert len(models) == 1, self.said
        return models[0]

    def outputs(self, run: dict[str, Any]) -> dict[str, np.ndarray]:
        found = {}
        for entry in run["outputs"]:
            kind = KINDS[entry["dtype"]]
            raw = np.fromfile(self.folder / entry["file"], kind) if entry["file"] else np.zeros(0, kind)
            found[entry["name"]] = raw.reshape(entry["shape"])
        return found


Harness = Callable[..., Dumped]


def harness_of(program: Path, project: Path, place: Path) -> Harness:
    """Return how a harness is run: on its kit's fixtures, or on a file of others."""

    def run(*words: object, engine: Engine | None = None, into: str = "dump", **environment: str) -> Dumped:
        folder = place / into
        command = ["mono", program, "-mlxSentisDump", folder, *words]
        code, said = (engine or Engine()).ran(command, project, **environment)
        document = folder / "dump.json"
        return Dumped(code, said, folder, read_json(document) if document.exists() else {})

    return run


@pytest.fixture
def dump(project: Any, tmp_path: Path) -> Harness:
    program = project.folder / "built" / "Harness.exe"
    return harness_of(program if program.exists() else project.built.program("Harness"), project.folder, tmp_path)


def written(folder: Path, text: str, fixtures: dict[str, dict[str, Any]]) -> Path:
    """Write a model given as text, with fixtures, outside of any project, and return its fixtures.json."""
    folder.mkdir(exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), folder / "small.onnx")
    model = HarnessModel("../small.onnx", sha256_of(folder / "small.onnx"), fixtures)
    write_parity_inputs(folder / "Parity~", [model], "2.6")
    return folder / "Parity~" / "fixtures.json"


def test_a_dump_holds_what_the_runtime_computed_of_every_fixture(dump: Harness, finished: RunFolder) -> None:
    found = dump("-mlxSentisRuns", 2)
    assert found.code == 0, found.said
    assert found.said[-1] == "left 0 0"
    head = {key: found.document[key] for key in ("schema", "package", "version", "unity", "device")}
    assert head == {
        "schema": DUMP_SCHEMA,
        "package": "com.unity.ai.inference",
        "version": "2.6.1",
        "unity": "6000.0.1f1",
        "device": "a processor",
    }
    assert len(found.document["date"]) == 10
    onnx_file = finished.path("onnx", "model.onnx")
    assert (found.model["file"], found.model["sha256"]) == ("model.onnx", sha256_of(onnx_file))
    assert found.model["import"] == {"ok": True, "warnings": [], "errors": []}
    session = open_session(onnx_file, "all")
    index = read_json(finished.path("onnx", "fixtures", "index.json"))
    assert [run["fixture"] for run in found.model["runs"]] == [entry["name"] for entry in index["fixtures"]]
    for run in found.model["runs"]:
        with np.load(finished.path("onnx", "fixtures", f"{run['fixture']}.npz")) as archive:
            inputs = {key[4:]: archive[key] for key in archive.files if key.startswith("in::")}
        assert run["fixture_sha256"] == fixture_sha256(inputs)
        assert (run["backend"], run["error"], len(run["milliseconds"])) == ("CPU", "", 2)
        assert all(0 < one < 60000 for one in run["milliseconds"])
        outputs = found.outputs(run)
        names = [value.name for value in session.get_outputs()]
        assert list(outputs) == names
        for name, wanted in zip(names, session.run(names, inputs), strict=True):
            assert np.allclose(outputs[name], wanted, rtol=0, atol=1e-5), name  # another number of threads
            assert outputs[name].dtype == np.float32


def test_what_the_harness_wrote_is_what_parity_reads(dump: Harness, finished: RunFolder, tmp_path: Path) -> None:
    found, run = dump(STUB_GRAPHICS="1"), tmp_path / "run"
    shutil.copytree(finished.root, run)  # parity writes its report there
    done = call("parity", run, "--edge", "ab", "--sentis-dump", found.folder, "--json", "-q")
    document = json.loads(done.stdout)
    told = {row["sentis"] for row in document["rows"] if row["edge"] == "B"}
    day = found.document["date"]
    assert told == {f"measured (2.6.1, CPU, {day})", f"measured (2.6.1, GPUCompute, {day})"}
    assert {row["verdict"] for row in document["rows"] if row["edge"] == "B"} == {"pass"}
    assert document["emulator"]["compared"] > 0 and document["emulator"]["findings"] == []


def test_a_graphics_device_brings_a_second_backend(dump: Harness) -> None:
    found = dump(STUB_GRAPHICS="1")
    assert found.code == 0, found.said
    assert [run["backend"] for run in found.model["runs"]] == ["CPU", "CPU", "GPUCompute", "GPUCompute"]
    assert found.document["device"] == "a processor / a graphics device"
    files = [entry["file"] for run in found.model["runs"] for entry in run["outputs"]]
    assert len(files) == len(set(files))
    assert found.said[-1] == "left 0 0"


TYPES = {
    "float16": np.array([0.1, -65504, 6e-8, np.inf, -0.0, np.nan], np.float16),
    "float64": np.array([0.1, -1e300, 1e-300, 3, 2, 1], np.float64),
    "int64": np.array([2**40, -(2**40), 7, 0, -1, 1], np.int64),
    "int8": np.array([-128, 127, 0, 1, 2, 3], np.int8),
    "uint8": np.array([0, 255, 128, 1, 2, 3], np.uint8),
    "bool": np.array([True, False, True, True, False, False]),
}


def test_every_type_of_input_arrives_as_sentis_takes_it(dump: Harness, tmp_path: Path, project: Any) -> None:
    arguments = ", ".join(f"{name if name != 'float64' else 'double'}[6] {name}_in" for name in TYPES)
    body = " ".join(f"{name}_out = Identity({name}_in)" for name in TYPES)
    results = ", ".join(f"{name if name != 'float64' else 'double'}[6] {name}_out" for name in TYPES)
    text = f'<ir_version: 8, opset_import: ["": 16]> g ({arguments}) => ({results}) {{ {body} }}'
    fixtures = written(tmp_path / "model", text, {"one": {f"{name}_in": array for name, array in TYPES.items()}})
    engine = Engine()
    with np.errstate(over="ignore"):
        found = dump("-mlxSentisFixtures", fixtures, engine=engine)
        wanted = {f"{name}_in": sentis_typed(array) for name, array in TYPES.items()}
    assert found.code == 0, found.said
    assert len(found.model["runs"]) == 1, found.said
    run = found.model["runs"][0]
    assert run["error"] == ""
    assert run["fixture_sha256"] == fixture_sha256({f"{name}_in": array for name, array in TYPES.items()})
    _, given = engine.runs[0]
    for name, array in wanted.items():
        np.testing.assert_array_equal(given[name], array, strict=True)
    guests = project.folder / "Assets" / "MlxSentisParity"
    assert not guests.exists()  # the copy was taken out again


SCALAR = '<ir_version: 8, opset_import: ["": 13]> g (float s, float[0,2] e) => (float t, float[0,2] f)'


def test_scalars_and_empty_tensors_keep_their_shapes(dump: Harness, tmp_path: Path) -> None:
    inputs = {"s": np.array(2.5, np.float32), "e": np.zeros((0, 2), np.float32)}
    fixtures = written(tmp_path / "model", SCALAR + " { t = Add(s, s) f = Identity(e) }", {"one": inputs})
    found = dump("-mlxSentisFixtures", fixtures)
    assert len(found.model["runs"]) == 1, found.said
    run = found.model["runs"][0]
    assert [(entry["shape"], entry["file"]) for entry in run["outputs"]] == [
        ([], "small.onnx/CPU/one/0.bin"),
        ([0, 2], None),
    ]
    assert found.outputs(run)["t"] == 5.0


def test_import_messages_are_kept_and_a_failed_import_has_no_runs(dump: Harness, tmp_path: Path) -> None:
    warned = Engine(warnings={"model.onnx": ['attribute "x\\y" is not supported\u2028']})
    assert dump(engine=warned).model["import"] == {
        "ok": True,
        "warnings": ['attribute "x\\y" is not supported\u2028'],
        "errors": [],
    }
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    model = HarnessModel("../broken.onnx", "0" * 64, {"one": {"x": np.zeros(1, np.float32)}})
    write_parity_inputs(tmp_path / "Parity~", [model], "2.6")
    found = dump("-mlxSentisFixtures", tmp_path / "Parity~" / "fixtures.json", into="second")
    assert found.code == 0
    assert (found.model["import"]["ok"], found.model["runs"]) == (False, [])
    assert found.model["sha256"] == sha256_of(tmp_path / "broken.onnx")  # what was imported, whatever was wanted
    (error,) = found.model["import"]["errors"]
    assert "broken.onnx" in error


def test_what_is_thrown_in_a_run_is_its_error(dump: Harness, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[N] x, float[M] z) => (float[K] y) { y = Add(x, z) }'
    bad = {"x": np.zeros(2, np.float32), "z": np.zeros(3, np.float32)}
    good = {"x": np.zeros(2, np.float32), "z": np.ones(2, np.float32)}
    other = {"x": np.zeros(2, np.float32), "z": np.ones(2, np.int32)}
    found = dump("-mlxSentisFixtures", written(tmp_path / "model", text, {"bad": bad, "good": good, "other": other}))
    assert found.code == 0
    bad_run, good_run, other_run = found.model["runs"]
    assert (bad_run["outputs"], good_run["error"]) == ([], "")
    assert bad_run["error"].startswith("InvalidOperationException: ")
    assert other_run["error"] == "ArgumentException: Cannot set input tensor z: data types do not match"
    assert found.said[-1] == "left 0 0"


def altered(project: Any, tmp_path: Path, change: Callable[[Path], object]) -> Path:
    """Copy the kit's fixtures beside its model, change them, and return their fixtures.json."""
    folder = tmp_path / "kit" / "Parity~"
    shutil.copytree(project.kit, tmp_path / "kit")
    change(folder)
    return folder / "fixtures.json"


def flip_a_byte(folder: Path) -> None:
    path = next(folder.rglob("*.bin"))
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


FAULTS_AT_ONCE = ("an altered input", "no JSON")
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "an altered input": (flip_a_byte, "the inputs' hash is "),
    "a missing input": (lambda folder: next(folder.rglob("*.bin")).unlink(), "Could not find file"),
    "another schema": (
        lambda folder: edit_json(folder / "fixtures.json", lambda d: d.update(schema="x/2")),
        "schema found x/2, wanted mlx-sentis/sentis-fixtures/1",
    ),
    "no list": (
        lambda folder: edit_json(folder / "fixtures.json", lambda d: d["models"][0].pop("fixtures")),
        "fixtures.json: no field fixtures",
    ),
    "no JSON": (lambda folder: (folder / "fixtures.json").write_text("{"), "not JSON: character 1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAULTS_AT_ONCE else pytest.mark.slow) for name in FAULTS]
)
def test_fixtures_that_are_not_what_they_say_end_the_harness(
    dump: Harness, project: Any, tmp_path: Path, name: str
) -> None:
    change, wanted = FAULTS[name]
    found = dump("-mlxSentisFixtures", altered(project, tmp_path, change))
    assert (found.code, found.document) == (1, {})
    assert any(line.startswith("Error: mlx-sentis: ") and wanted in line for line in found.said), found.said


def test_outputs_of_two_runs_are_never_mixed(dump: Harness) -> None:
    assert dump().code == 0
    again = dump()
    assert again.code == 1
    assert any("not empty; outputs of two runs must not be mixed" in line for line in again.said)
    none = dump("-mlxSentisRuns", "0", into="other")
    assert none.code == 1
    assert any("wanted at least 1" in line for line in none.said)


PLANTED: dict[str, tuple[str, str, str, Callable[..., None]]] = {
    "a hash without types": ("FixtureHash.cs", '" " + input.Dtype', '""',
                             test_scalars_and_empty_tensors_keep_their_shapes),
    "integers that wrap": ("TensorBytes.cs", "Saturated(BitConverter.ToInt64(bytes, at))",
                           "unchecked((int)BitConverter.ToInt64(bytes, at))",
                           test_every_type_of_input_arrives_as_sentis_takes_it),
    "bytes with a sign": ("TensorBytes.cs", "(int)bytes[at]", "(int)(sbyte)bytes[at]",
                          test_every_type_of_input_arrives_as_sentis_takes_it),
    "a guest that stays": ("ModelImport.cs", "_copied != null && !AssetDatabase.DeleteAsset(_copied)",
                           "_copied == null",
                           test_every_type_of_input_arrives_as_sentis_takes_it),
    "messages that nobody hears": ("ModelImport.cs", "Application.logMessageReceived += Hear;", "",
                                   test_import_messages_are_kept_and_a_failed_import_has_no_runs),
    "the hash of the file that was wanted": ("ModelImport.cs", "FixtureHash.OfFile(wanted.ModelFile)", "wanted.Sha256",
                                             test_import_messages_are_kept_and_a_failed_import_has_no_runs),
    "quotes as they are": ("DumpWriter.cs", "character == '\"' || character == '\\\\'", "character == '\\\\'",
                           test_import_messages_are_kept_and_a_failed_import_has_no_runs),
    "an import that may be skipped": ("ModelImport.cs", "ForceSynchronousImport | ImportAssetOptions.ForceUpdate",
                                      "ForceSynchronousImport", test_scalars_and_empty_tensors_keep_their_shapes),
    "an input that is not given back": ("FixtureRun.cs", "input.Dispose();", "",
                                        test_what_is_thrown_in_a_run_is_its_error),
    "an exit code of 0": ("ParityHarness.cs", "code = 1;", "", test_outputs_of_two_runs_are_never_mixed),
    "a folder with something in it": ("ParityHarness.cs", "GetFileSystemEntries(dump).Length > 0",
                                      "GetFileSystemEntries(dump).Length > 9999",
                                      test_outputs_of_two_runs_are_never_mixed),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_the_harness_is_found(project: Any, stubs: Path, tmp_path: Path, name: str) -> None:
    source, old, new, test = PLANTED[name]
    kit = tmp_path / "planted"
    shutil.copytree(project.kit, kit)
    path = kit / "Editor" / source
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    program = build_kit(kit, stubs, tmp_path / "built", "MyGame.Npc").program("Harness")
    cases: dict[Any, tuple[Any, ...]] = {
        test_scalars_and_empty_tensors_keep_their_shapes: (tmp_path,),
        test_every_type_of_input_arrives_as_sentis_takes_it: (tmp_path, project),
        test_import_messages_are_kept_and_a_failed_import_has_no_runs: (tmp_path,),
        test_what_is_thrown_in_a_run_is_its_error: (tmp_path,),
        test_outputs_of_two_runs_are_never_mixed: (),
    }
    with pytest.raises((AssertionError, StageError)):  # a dump that is no JSON is told by the one who reads it
        test(harness_of(program, project.folder, tmp_path), *cases[test])
    shutil.rmtree(project.folder / "Assets" / "MlxSentisParity", ignore_errors=True)
