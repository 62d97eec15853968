from __future__ import annotations

import json
import subprocess
import sys

import onnx.parser
import pytest
from click.testing import CliRunner

from converters import commands
from converters.export_command import export
from converters.passes import PASSES
from mlx_sentis.demo.toy import DECODER_TYPES


@pytest.fixture
def call():
    def run(command, *arguments):
        return CliRunner().invoke(command, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def bad(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Sum(x) }'
    path = tmp_path / "bad.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def test_scan_exits_0_when_clean_3_on_a_silent_deviation_and_1_when_unreadable(call, exported, bad, tmp_path):
    clean = call(commands.scan, exported("llama").onnx)
    assert clean.exit_code == 0 and "clean" in clean.stdout
    found = call(commands.scan, bad, "--json")
    assert found.exit_code == 3
    document = json.loads(found.stdout)
    assert document["schema"] == "mlx-sentis/scan/1" and document["findings"][0]["id"] == "SUM.SINGLE_INPUT"
    gone = call(commands.scan, tmp_path / "gone.onnx")
    assert gone.exit_code == 1 and gone.stdout == "" and gone.stderr.startswith("error: ")


def test_scan_adds_notes_and_writes_sarif_when_asked(call, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Cast<to=10>(x) }'
    path, sarif = tmp_path / "m.onnx", tmp_path / "scan.sarif"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert "clean" in call(commands.scan, path).stdout
    found = call(commands.scan, path, "--notes", "--sarif", sarif)
    assert found.exit_code == 0 and "CAST.FP16" in found.stdout
    (run,) = json.loads(sarif.read_text())["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [("CAST.FP16", "note")]


def test_fix_lists_its_passes_and_says_what_it_did(call, bad, tmp_path):
    listed = call(commands.fix, "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(PASSES)
    done = call(commands.fix, bad, "--out", tmp_path / "out.onnx")
    assert done.exit_code == 0 and "findings 1 → 0" in done.stdout and "SUM.SINGLE_INPUT" in done.stdout
    assert call(commands.fix, bad).exit_code == 2


def test_export_refuses_an_opset_it_does_not_write(call, exported, tmp_path):
    result = call(export, exported("llama").model, "--out", tmp_path / "onnx", "--opset", "15")
    assert result.exit_code == 1 and "opset 15: torch's exporter writes 18 to 23" in result.stderr
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize(
    "flags, message, code", [(["--dtype", "int8"], "export.dtype", 2), (["--family", "asr"], "asked for asr", 1)]
)
def test_export_refuses_what_it_does_not_know(call, exported, tmp_path, flags, message, code):
    result = call(export, exported("llama").model, "--out", tmp_path / "onnx", *flags)
    assert result.exit_code == code and message in result.stderr


@pytest.mark.parametrize("flags, message, code", [
    (["--pt2", "--dtype", "fp16"], "--pt2 with --dtype fp16", 1),
    (["--pt2", "--slots", 8], "--pt2 with --slots", 1),
    (["--pt2", "--sentis", "2.4"], "Sentis 2.4 does not read it", 1),
    (["--query", 4], "--query 4 is for --slots", 2),
    (["--name", "base.pt2", "--pt2"], "wanted a name that ends in .onnx", 2),
    (["--name", "contract.json"], "wanted a name that ends in .onnx", 2),
    (["--slots", 8, "--batch", "dynamic"], "for one row", 1),
])  # fmt: skip
def test_export_refuses_what_does_not_go_together_before_anything_is_written(
    call, toy_model, tmp_path, flags, message, code
):
    result = call(export, toy_model("llama"), "--out", tmp_path / "onnx", *flags)
    assert result.exit_code == code and message in result.stderr
    assert not (tmp_path / "onnx").exists()


def test_families_columns_are_aligned(call):
    lines = call(commands.families).stdout.splitlines()
    architectures = {line.split()[1] for line in lines}
    assert len({line.index(f" {one} ") for line in lines for one in architectures if f" {one} " in line}) == 1


def test_families_lists_every_architecture(call):
    rows = json.loads(call(commands.families, "--json").stdout)["families"]
    assert {row["architecture"] for row in rows} == {*DECODER_TYPES, "bert", "whisper", "sa3_dit"}
    swapped = {row["architecture"] for row in rows if "swap" in row["stages"]}
    assert swapped == set(DECODER_TYPES)


def test_scan_loads_neither_torch_nor_mlx(bad):
    code = (
        "import sys\nfrom pathlib import Path\nfrom converters.scan import scan\nimport converters.commands\n"
        f"scan(Path({str(bad)!r}))\n"
        "print([m for m in ('torch', 'transformers', 'mlx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
