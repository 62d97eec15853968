"""Reading a measured probe pack: what agrees with the facts, what does not, what nothing is known of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, edit_json

from converters.unity.probes.pack import write_probes
from parity.emulator import predict
from parity.fixtures import read_fixture
from parity.probes import Reading, difference, read_probes
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of, write_json
from weights_bridge.sentis_dump import DUMP_SCHEMA, fixture_sha256

Answers = Callable[[str, Path, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any] | str]


SOME = (
    "class-",
    "attribute-maxpool-ceil_mode",
    "attribute-layernorm",
    "attribute-swish",
    "attribute-add",
    "fusion-gelu",
)


@pytest.fixture(scope="module")
def whole_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack") / "Probes~"
    write_probes(folder, "2.6")
    return folder


@pytest.fixture(scope="module")
def pack(whole_pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of some of the probes: all classes, and one of each way to answer."""
    folder = tmp_path_factory.mktemp("some") / "Probes~"
    shutil.copytree(whole_pack, folder)
    edit_json(folder / "probes.json", lambda d: d.update(probes=[p for p in d["probes"] if p["name"].startswith(SOME)]))
    return folder


def write_dump(pack: Path, folder: Path, answers: Answers, version: str = "2.6.1") -> Path:
    """Write the dump that a package would leave which answers so: outputs by name, or what the import says."""
    models = []
    for probe in read_json(pack / "probes.json")["probes"]:
        entry: dict[str, Any] = {"file": probe["model"], "sha256": sha256_of(pack / probe["model"]), "runs": []}
        entry["import"] = {"ok": True, "warnings": [], "errors": []}
        for name in probe["fixtures"]:
            inputs, outputs = read_fixture(pack / name)
            said = answers(probe["name"], pack / probe["model"], inputs, outputs)
            if isinstance(said, str):
                entry["import"] = {"ok": False, "warnings": [], "errors": [said]}
                continue
            entry["runs"].append(_run(folder, name, inputs, said))
        models.append(entry)
    head = {"schema": DUMP_SCHEMA, "package": "com.unity.ai.inference", "version": version, "unity": "6000.0.1f1"}
    write_json(folder / "dump.json", head | {"date": "2026-11-30", "device": "made", "models": models})
    return folder


def _run(folder: Path, name: str, inputs: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for at, (output, array) in enumerate(said.items()):
        kind = np.float32 if array.dtype.kind == "f" else np.int32
        file = folder / name / f"{at}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        array.astype(kind).tofile(file)
        place = file.relative_to(folder).as_posix() if array.size else None
        rows.append({"name": output, "dtype": np.dtype(kind).name, "shape": list(array.shape), "file": place})
    facts = {"backend": "CPU", "fixture": name.removesuffix(".npz").partition("--")[2], "error": ""}
    return facts | {"fixture_sha256": fixture_sha256(inputs), "milliseconds": [1.0], "outputs": rows}


def as_predicted(name: str, model: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """Answer as the facts say; where they say nothing, as ONNX."""
    said = predict(model, inputs, "2.6")
    if said.verdict == "import fails":
        return said.reason
    return said.outputs if said.verdict == "predicted" and not said.unpredicted else outputs


def as_onnx(name: str, model: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    return outputs


@pytest.fixture(scope="module")
def predicted(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dump of a package that does what the facts of 2.6 say."""
    return write_dump(pack, tmp_path_factory.mktemp("dump"), as_predicted)


def of(reading: Reading, probe: str) -> Any:
    (row,) = [row for row in reading.rows if row.probe == probe]
    return row


def test_a_package_that_does_what_the_facts_say_agrees(pack: Path, predicted: Path) -> None:
    reading = read_probes(pack, predicted, "2.6")
    assert [row for row in reading.rows if row.agrees is False] == []
    agreed = [row for row in reading.rows if row.agrees]
    assert [row.probe for row in reading.news] == ["attribute-add-axis"]  # an opset before the window
    assert len({row.predicted.partition(":")[0] for row in agreed}) == 3  # as ONNX, otherwise, fails
    assert of(reading, "class-d").predicted.startswith("otherwise: by ")
    assert of(reading, "class-b").predicted.startswith("fails: ")
    assert of(reading, "class-c-benign").predicted == "as ONNX"


@pytest.mark.slow
def test_the_whole_pack_is_predicted(whole_pack: Path, tmp_path: Path) -> None:
    reading = read_probes(whole_pack, write_dump(whole_pack, tmp_path / "dump", as_predicted), "2.6")
    assert reading.findings == []
    assert len(reading.rows) - len(reading.news) >= 55


def test_a_package_that_computes_onnx_shows_every_fact_that_no_longer_holds(pack: Path, tmp_path: Path) -> None:
    reading = read_probes(pack, write_dump(pack, tmp_path / "dump", as_onnx, "2.7.0"), "2.6")
    wrong = {row.probe for row in reading.rows if row.agrees is False}
    assert {"class-b", "class-d", "attribute-maxpool-ceil_mode", "attribute-layernormalization-axis"} <= wrong
    assert all(row.measured == "as ONNX" for row in reading.rows)
    assert all(row.predicted != "as ONNX" for row in reading.rows if row.agrees is False)


def test_one_probe_that_answers_otherwise_is_the_one_that_is_named(pack: Path, tmp_path: Path) -> None:
    def once(name: str, model: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
        said = as_predicted(name, model, inputs, outputs)
        return {"y": said["y"] + 1} if name == "attribute-swish-alpha" else said

    folder = write_dump(pack, tmp_path / "dump", once)
    found = call("probes", pack, "--sentis-dump", folder, "--sentis", "2.6", "--json")
    assert found.exit_code == 3
    document = json.loads(found.stdout)
    (row,) = [row for row in document["rows"] if row["agrees"] is False]
    assert (row["probe"], row["measured"]) == ("attribute-swish-alpha", "otherwise: by 1")
    assert document["counts"]["otherwise"] == 1
    assert document["counts"]["not predicted"] == 1
    assert "1 probe not as the facts of 2.6 say" in found.stderr


def test_a_dump_of_other_files_or_inputs_is_refused_or_named(pack: Path, predicted: Path, tmp_path: Path) -> None:
    other = tmp_path / "pack"
    shutil.copytree(pack, other)
    (other / "class-a.onnx").write_bytes((other / "class-a.onnx").read_bytes()[:-1])
    with pytest.raises(StageError, match=r"nothing of class-a\.onnx, or of another file"):
        read_probes(other, predicted, "2.6")
    edit_json(other / "probes.json", lambda document: document.update(schema="x"))
    with pytest.raises(StageError, match="not an index of probes"):
        read_probes(other, predicted, "2.6")
    (other / "class-a.onnx").unlink()
    shutil.copyfile(pack / "probes.json", other / "probes.json")
    with pytest.raises(StageError, match=r"models of the index are missing:\n  class-a\.onnx"):
        read_probes(other, predicted, "2.6")
    dump = tmp_path / "dump"
    shutil.copytree(predicted, dump)
    edit_json(dump / "dump.json", lambda d: d["models"][2]["runs"][0].update(fixture_sha256="0" * 64))
    reading = read_probes(pack, dump, "2.6")
    (row,) = [row for row in reading.rows if row.agrees is False]
    assert row.measured.startswith("fails: another fixture: ")
    assert call("probes", pack, "--sentis-dump", tmp_path / "none").exit_code == 1
    assert "no pack of probes" in call("probes", tmp_path, "--sentis-dump", predicted).stderr
    assert call("probes", pack, "--sentis-dump", predicted, "--sentis", "9.9").exit_code == 1


@pytest.mark.parametrize(
    "probes",
    [None, {}, [3], [{"name": "a"}], [{"name": "a", "asks": "", "model": "a.onnx", "fixtures": "a.npz"}]],
)
def test_an_index_of_another_form_is_one_line(pack: Path, tmp_path: Path, probes: Any) -> None:
    write_json(tmp_path / "probes.json", read_json(pack / "probes.json") | {"probes": probes})
    found = call("probes", tmp_path, "--sentis-dump", tmp_path)
    assert found.exit_code == 1 and "not an index of probes" in found.stderr and "Traceback" not in found.output


def test_rounding_is_no_difference_and_nan_shape_and_infinity_are() -> None:
    one = np.array([1.0, 1000.0], np.float32)
    assert difference(one + np.array([0, 0.05], np.float32), one) == ""
    assert difference(one + np.array([0, 0.5], np.float32), one) == "by 0.5"
    assert difference(one[None], one) == "shape [1, 2], wanted [2]"
    assert difference(np.array([np.nan, 1], np.float32), one) == "1 NaN, wanted 0"
    assert difference(np.array([np.nan], np.float32), np.array([np.nan], np.float32)) == ""
    assert difference(np.array([np.inf], np.float32), np.array([np.inf], np.float32)) == ""
    assert difference(np.array([np.inf], np.float32), np.array([1], np.float32)) == "by inf"
