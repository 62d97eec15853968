"""Dump folders from Unity: each way in which one is bad has its own reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentis_dumps import edit_dump, write_dump

from parity.runners.dump import DumpedModel, read_dump
from parity.runners.recorded import Recorded, model_of, recorded_outputs, version_fault
from weights_bridge.compare import GateResult
from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of
from weights_bridge.sentis_dump import fixture_sha256

INPUTS = {"ids": np.arange(3, dtype=np.int64), "none": np.zeros((1, 0), np.float32)}
OUTPUTS = {"y": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.asarray(7), "empty": np.zeros((0, 2), np.float32)}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(b"a graph")
    return write_dump(
        tmp_path / "dump", tmp_path / "m.onnx", {"one": (INPUTS, OUTPUTS)}, backends=("CPU", "GPUCompute")
    )


def found(folder: Path, **changes: np.ndarray) -> Recorded:
    read = read_dump(folder)
    model = model_of(read, sha256_of(folder.parent / "m.onnx"), "m.onnx")
    assert isinstance(model, DumpedModel), model
    first, _ = recorded_outputs(read, model, "one", fixture_sha256(INPUTS | changes), OUTPUTS)
    return first


def reasons(recorded: Recorded) -> set[tuple[str, str]]:
    return {(fault.reason, fault.where) for fault in recorded.faults}


def first_output(document: dict[str, Any]) -> dict[str, Any]:
    return document["models"][0]["runs"][0]["outputs"][0]


def test_every_output_of_every_backend_comes_back_in_the_types_of_sentis(dump: Path) -> None:
    read = read_dump(dump)
    model = model_of(read, sha256_of(dump.parent / "m.onnx"), "m.onnx")
    assert isinstance(model, DumpedModel)
    both = recorded_outputs(read, model, "one", fixture_sha256(INPUTS), OUTPUTS)
    assert [one.backend for one in both] == ["CPU", "GPUCompute"]
    for one in both:
        assert (list(one.faults), one.milliseconds) == ([], (40.5, 21.25))
        assert {name: array.dtype for name, array in one.outputs.items()} == {
            "y": np.float32, "n": np.int32, "empty": np.float32,
        }  # fmt: skip
        for name, array in OUTPUTS.items():
            np.testing.assert_array_equal(one.outputs[name], array)


@pytest.mark.parametrize(
    ("found_version", "wanted", "same"),
    [("2.6.0", "2.6", True), ("2.6.1", "2.6", True), ("2.6.0-pre.1", "2.6", True), ("2.60.0", "2.6", False),
     ("2.5.0", "2.6", False), ("2.6", "2.6", True)],
)  # fmt: skip
def test_another_package_version_is_told_from_a_patch(dump: Path, found_version: str, wanted: str, same: bool) -> None:
    edit_dump(dump, lambda document: document.update(version=found_version))
    fault = version_fault(read_dump(dump), wanted)
    assert (fault is None) == same
    if fault is not None:
        assert fault.reason == "another version" and found_version in fault.detail and wanted in fault.detail


def test_another_package_under_the_same_version_is_not_taken_for_it(dump: Path) -> None:
    edit_dump(dump, lambda document: document.update(package="com.unity.sentis"))
    fault = version_fault(read_dump(dump), "2.6")
    assert fault is not None and fault.reason == "another version" and "com.unity.sentis" in fault.detail


def test_a_dump_of_another_model_names_both_hashes(dump: Path) -> None:
    fault = model_of(read_dump(dump), "0" * 64, "mine.onnx")
    assert isinstance(fault, GateResult)
    assert (fault.passed, fault.reason) == (False, "another model")
    assert sha256_of(dump.parent / "m.onnx")[:12] in fault.detail and "mine.onnx 000000000000…" in fault.detail


def test_an_import_that_failed_in_unity_says_what_unity_said(dump: Path) -> None:
    said = {"ok": False, "warnings": [], "errors": ["OnnxImportException: Foo"]}
    edit_dump(dump, lambda document: document["models"][0].update({"import": said, "runs": []}))
    fault = model_of(read_dump(dump), sha256_of(dump.parent / "m.onnx"), "m.onnx")
    assert isinstance(fault, GateResult)
    assert (fault.reason, fault.detail) == ("import failed", "OnnxImportException: Foo")


def test_a_run_that_threw_says_what_was_thrown(dump: Path) -> None:
    edit_dump(dump, lambda d: d["models"][0]["runs"][0].update(error="NullReferenceException", outputs=[]))
    assert [(f.reason, f.detail) for f in found(dump).faults] == [("run failed", "NullReferenceException")]


def test_outputs_of_a_fixture_with_other_inputs_are_not_given_out(dump: Path) -> None:
    changed = found(dump, ids=np.asarray([0, 1, 3]))
    assert not changed.outputs
    assert reasons(changed) == {("another fixture", "one")}


def test_a_fixture_that_was_not_run_is_told_as_such_and_what_was_run_is_named(dump: Path) -> None:
    edit_dump(dump, lambda document: document["models"][0]["runs"][0].update(fixture="two", fixture_sha256="1" * 64))
    one = found(dump)
    assert reasons(one) == {("not recorded", "one")} and "the dump has two" in one.faults[0].detail


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda d: d["models"][0]["runs"][0]["outputs"].pop(0), {("missing", "y")}),
        (lambda d: d["models"][0]["runs"][0]["outputs"].append(first_output(d) | {"name": "z"}), {("extra", "z")}),
        (lambda d: first_output(d).update(name="Y"), {("missing", "y"), ("extra", "Y")}),
        (lambda d: first_output(d).update(file="CPU/gone.bin"), {("no file", "y")}),
        (lambda d: first_output(d).update(file="CPU"), {("no file", "y")}),  # a folder
        (lambda d: first_output(d).update(shape=[2, 4]), {("truncated", "y")}),
        (lambda d: first_output(d).update(shape=[2, 2]), {("too long", "y")}),
    ],
)
def test_a_tensor_that_is_not_there_or_not_whole_has_its_own_reason_and_the_others_are_read(
    dump: Path, change: Callable[[Any], Any], wanted: set[tuple[str, str]]
) -> None:
    edit_dump(dump, change)
    one = found(dump)
    assert reasons(one) == wanted
    assert ("y" in one.outputs) == (wanted == {("extra", "z")})
    assert {"n", "empty"} <= set(one.outputs)


def test_a_file_that_was_cut_after_the_dump_is_truncated(dump: Path) -> None:
    (path,) = dump.glob("CPU/one/0.bin")
    path.write_bytes(path.read_bytes()[:-1])
    (fault,) = found(dump).faults
    assert (fault.reason, fault.where) == ("truncated", "y")
    assert fault.detail == "CPU/one/0.bin: found 23 bytes, wanted 24 bytes (float32 [2, 3])"


BAD: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("another schema", lambda d: d.update(schema="mlx-sentis/sentis-dump/2"), "schema: found"),
    ("no version", lambda d: d.pop("version"), "version: missing"),
    ("a day in words", lambda d: d.update(date="yesterday\n| x |"), "date: found"),
    ("a day without dashes", lambda d: d.update(date="20261201"), "a day as YYYY-MM-DD"),
    ("a version of two lines", lambda d: d.update(version="2.6.0\n2.5.0"), "a package version such as 2.6.0"),
    (
        "a version in a table",
        lambda d: d.update(version="2.6.0|x"),
        "version: found '2.6.0|x', wanted a package version",
    ),
    ("models no list", lambda d: d.update(models={}), "models: found {}, wanted a list"),
    ("no models", lambda d: d.update(models=[]), "models: the list is empty"),
    ("a model that is text", lambda d: d.update(models=["m"]), "models[0]: found 'm', wanted an object"),
    ("no import", lambda d: d["models"][0].pop("import"), "models[0].import: missing"),
    ("ok no truth", lambda d: d["models"][0]["import"].update(ok=1), "models[0].import.ok: found 1"),
    ("hash too short", lambda d: d["models"][0].update(sha256="ab"), "models[0].sha256: found 'ab'"),
    ("backend", lambda d: d["models"][0]["runs"][0].update(backend="GPUPixel"), "wanted CPU or GPUCompute"),
    ("backend a list", lambda d: d["models"][0]["runs"][0].update(backend=[]), "wanted CPU or GPUCompute"),
    ("twice", lambda d: d["models"][0]["runs"].append(d["models"][0]["runs"][0]), "are those of models[0].runs[0]"),
    ("times", lambda d: d["models"][0]["runs"][0].update(milliseconds=[float("nan")]), "a list of milliseconds"),
    ("dtype", lambda d: first_output(d).update(dtype="int64"), "wanted float32 or int32"),
    ("negative size", lambda d: first_output(d).update(shape=[-2, -3]), "wanted sizes"),
    ("true for a size", lambda d: first_output(d).update(shape=[True]), "wanted sizes"),
    ("too many elements", lambda d: first_output(d).update(shape=[2**20, 2**20]), "wanted sizes"),
    ("null for a tensor", lambda d: first_output(d).update(file=None), "the tensor has 6 elements"),
    ("absolute", lambda d: first_output(d).update(file="/etc/hostname"), "inside the folder: absolute"),
    ("a drive", lambda d: first_output(d).update(file="C:\\dump\\0.bin"), "inside the folder: absolute"),
    ("upwards", lambda d: first_output(d).update(file="CPU/../../m.onnx"), "`..` leads out of it"),
    ("upwards on Windows", lambda d: first_output(d).update(file="CPU\\..\\..\\m.onnx"), "`..` leads out of it"),
    ("a link", lambda d: first_output(d).update(file="link/m.onnx"), "a link leads out of it"),
    ("no name", lambda d: first_output(d).update(file=" "), "no file's name"),
    ("a name of 300 letters", lambda d: first_output(d).update(file="x" * 300), "no file"),
    ("half a character", lambda d: first_output(d).update(name="\ud800"), "wanted a text"),
    ("output twice", lambda d: first_output(d).update(name="n"), "'n' is there twice"),
]


@pytest.mark.parametrize(("change", "told"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_document_that_is_no_dump_is_refused_with_the_place(
    dump: Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    (dump / "link").symlink_to(dump.parent)
    edit_dump(dump, change)
    try:
        read = read_dump(dump)
    except StageError as error:
        assert told in error.message
        assert "dump.json: not a dump:" in error.message and error.exit_code == 1
    else:  # a name that this file system refuses, or that is simply not there
        assert told == "no file" and reasons(found(dump)) == {("no file", "y")} and read


def test_all_faults_are_told_at_once(dump: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        first_output(document).update(dtype="half", shape=None)
        document["models"][0].pop("sha256")

    edit_dump(dump, change)
    with pytest.raises(StageError) as told:
        read_dump(dump)
    assert told.value.message.count("\n  models[0]") == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"{", "dump.json:1: not JSON"), (b"\xff", "not UTF-8"), (b"[1]", "schema: found 'list'"), (b"null", "schema"),
     (b"[" * 100_000, "not readable as JSON"), (b"", "not JSON"), (b"1" * 5000, "not readable as JSON")],
)  # fmt: skip
def test_a_file_that_is_no_document_is_refused(dump: Path, content: bytes, told: str) -> None:
    (dump / "dump.json").write_bytes(content)
    with pytest.raises(StageError, match=told):
        read_dump(dump)


def test_a_folder_without_dump_is_of_a_run_that_did_not_end(dump: Path) -> None:
    (dump / "dump.json").unlink()
    with pytest.raises(StageError, match="did not end"):
        read_dump(dump)
    with pytest.raises(StageError, match="no such folder"):
        read_dump(dump / "elsewhere")
    (dump / "dump.json").mkdir()
    with pytest.raises(StageError, match=r"dump\.json: not a file, but a folder or a pipe"):
        read_dump(dump)
    (dump / "dump.json").rmdir()
    os.mkfifo(dump / "dump.json")
    with pytest.raises(StageError, match="not a file"):
        read_dump(dump)


def test_hashes_in_capitals_are_the_same(dump: Path) -> None:
    upper = json.loads((dump / "dump.json").read_text())
    upper["models"][0]["sha256"] = upper["models"][0]["sha256"].upper()
    (dump / "dump.json").write_text(json.dumps(upper))
    assert not found(dump).faults
