"""optimum-onnx in another interpreter: what a user may name by mistake, and what a real one exports.

The real one is run where `MLX_SENTIS_OPTIMUM_PYTHON` names the interpreter of an environment that has it. The others
are environments made here, some with an `optimum` of a few lines that fails as exporters do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import call, edit_json

from converters import onnx_file, optimum_path, optimum_python
from converters.scan import scan
from weights_bridge.errors import StageError

REAL = os.environ.get("MLX_SENTIS_OPTIMUM_PYTHON", "")
WHOLE = {"optimum": "2.1.0", "optimum-onnx": "0.1.0", "transformers": "4.57.6", "torch": "2.13.0"}
REQUIRES = {"optimum-onnx": "transformers<4.58.0,>=4.36"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without any package."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Path]:
    """planted(code, package=version…): an interpreter with these packages, `main_export(model, output)` being code."""

    def plant(code: str = "pass", **versions: str) -> Path:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
        (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
        import packaging

        (site / "packaging").symlink_to(Path(packaging.__file__).parent)  # transformers would have brought it
        for name, version in (WHOLE | {key.replace("_", "-"): value for key, value in versions.items()}).items():
            folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            lines = [f"Name: {name}", f"Version: {version}"]
            lines += [f"Requires-Dist: {REQUIRES[name]}"] if name in REQUIRES else []
            (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        exporters = site / "optimum" / "exporters"
        exporters.mkdir(parents=True)
        text = f"import json, os, pathlib\ndef main_export(model, output, **_):\n    print('a story')\n    {code}\n"
        (exporters / "onnx.py").write_text(text)
        return tmp_path / "env" / "bin" / "python"

    return plant


def refusal(named: object) -> str:
    with pytest.raises(StageError) as caught:
        optimum_python.require_optimum(str(named))
    assert "pip install torch optimum-onnx" in caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message


def test_what_is_no_interpreter_is_told_in_a_line(tmp_path, bare):
    assert "no program of this name" in refusal(tmp_path / "nowhere")
    assert "is a folder" in refusal(bare.parent.parent)
    text = tmp_path / "text"
    text.write_bytes(b"\x00\x01 no program")
    assert "no program of this name" in refusal(text)
    text.chmod(0o755)
    assert "cannot be run: Exec format error" in refusal(text)
    assert "ended with code 0 and no answer" in refusal("true")
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nkill -9 $$\n")
    silent.chmod(0o755)
    assert "ended by signal 9" in refusal(silent)


def test_a_program_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(optimum_python, "ASKED_SECONDS", 0.2)
    waits = tmp_path / "waits"
    waits.write_text("#!/bin/sh\nexec sleep 60\n")
    waits.chmod(0o755)
    assert "no answer in 0.2 seconds" in refusal(waits)


def test_an_environment_without_optimum_is_told_by_what_it_lacks(bare, planted, tmp_path, monkeypatch):
    assert f"{bare}: optimum is not installed" in refusal(bare)
    unfit = planted(transformers="5.1.0")
    for folder in tmp_path.glob("env/lib/*/site-packages/transformers-4*"):
        (folder / "METADATA").unlink()
        folder.rmdir()
    assert "optimum-onnx 0.1.0 wants transformers <4.58.0,>=4.36, here is 5.1.0" in refusal(unfit)
    (site,) = tmp_path.glob("env/lib/*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(site))  # ours, not the other interpreter's
    assert "optimum is not installed" in refusal(bare)


def test_a_link_to_an_interpreter_keeps_its_environment(planted, tmp_path, monkeypatch):
    python = planted()
    assert optimum_python.require_optimum(str(python)) == WHOLE
    monkeypatch.chdir(tmp_path)
    assert optimum_python.require_optimum("env/bin/python") == WHOLE


@pytest.mark.parametrize("code, message", [
    ("raise ValueError('no such task\\nand more')", "optimum-onnx cannot export it: no such task"),
    ("[pathlib.Path(output, name).touch() for name in ('b.onnx', 'a.onnx')]", "writes a.onnx, b.onnx;"),
    ("pass", "writes nothing;"),
    ("os.kill(os.getpid(), 9)", "ended by signal 9; did memory run out?"),
    ("os._exit(3)", "ended with code 3 and no answer"),
])  # fmt: skip
def test_what_goes_wrong_over_there_is_a_line_here(planted, toy_model, tmp_path, code, message):
    words = ("--path", "optimum", "--optimum-python", planted(code))
    answer = call("export", toy_model("llama"), "--out", tmp_path / "out", *words)
    assert answer.exit_code == 1 and message in answer.stderr and "Traceback" not in answer.stderr
    assert answer.stdout == "" and not (tmp_path / "out").exists()


@pytest.mark.parametrize("model_type, wanted", [("llama", [50000.0, None]), ("gemma3_text", [50000.0, 5000.0])])
def test_rotary_bases_are_given_where_older_transformers_looks_for_them(
    planted, toy_model, tmp_path, model_type, wanted
):
    model = tmp_path / "model"
    model.mkdir()
    for path in toy_model(model_type).iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    keys = ("rope_theta", "rope_local_base_freq")
    edit_json(model / "config.json", lambda config: [config.pop(key, None) for key in keys])
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    code = f"raise ValueError(json.dumps([json.load(open(model + '/config.json')).get(key) for key in {keys}]))"
    with pytest.raises(StageError) as caught:
        optimum_path.run_optimum(model, tmp_path, 18, str(planted(code)))
    assert json.loads(caught.value.message.partition("export it: ")[2]) == wanted
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_options_that_optimum_decides_by_itself_are_refused_by_name(planted, toy_model, tmp_path):
    python = planted("raise ValueError('asked')")
    asked = ("export", toy_model("llama"), "--out", tmp_path / "out", "--optimum-python", python, "--path", "optimum")
    answer = call(*asked, "--argmax", "--slots", 8, "--dtype", "fp16", "--pt2", "--family", "causal_lm")
    assert answer.exit_code == 1
    assert "decides that by itself: --family, --dtype, --argmax, --slots, --pt2" in answer.stderr


def test_the_choice_names_the_versions_of_the_other_environment(planted, toy_model):
    from converters import route

    python = str(planted())
    chosen = route.choose(toy_model("llama"), "optimum", python)
    assert chosen.reason.startswith("optimum 2.1.0, optimum-onnx 0.1.0, transformers 4.57.6, torch 2.13.0, checked")
    assert route.choose(toy_model("llama"), "auto", python).others == {"optimum": "not needed"}


@pytest.fixture
def real() -> str:
    """Return the interpreter that has optimum-onnx, or skip by name."""
    if not REAL:
        pytest.skip("MLX_SENTIS_OPTIMUM_PYTHON names no interpreter that has optimum-onnx")
    return REAL


@pytest.mark.slow
def test_the_real_optimum_exports_a_toy_with_torchs_numbers(real, toy_model, tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    for path in toy_model("llama").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    edit_json(model / "config.json", lambda config: config.pop("rope_theta"))  # as transformers 5 writes it
    words = ("export", model, "--out", tmp_path / "out", "--path", "optimum", "--optimum-python", real, "--json")
    answer = call(*words)
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert document["checked"] == "logits" and (document["psnr_db"] or 200) > 100
    assert document["findings"] == sum(one.blocking for one in scan(tmp_path / "out" / "base.onnx"))
    monkeypatch.setattr(optimum_path, "rope_in_both_spellings", lambda config, _: config)
    missed = call(*words)
    assert missed.exit_code == 3 and "dB from torch's" in missed.stderr  # the rotary base of 10000, in silence


@pytest.mark.slow
def test_an_architecture_without_a_wrapper_goes_to_the_real_optimum(real, tmp_path):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    answer = call("export", tmp_path / "model", "--out", tmp_path / "out", "--optimum-python", real)
    assert answer.exit_code == 0, answer.output
    assert "path optimum" in answer.stderr and "not wrapper: none for gpt2" in answer.stderr
    graph = onnx_file.read_skeleton(tmp_path / "out" / "base.onnx").model.graph
    assert {"past_key_values.0.key", "past_key_values.1.value"} <= {value.name for value in graph.input}
