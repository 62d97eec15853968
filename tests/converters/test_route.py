"""Which way is taken, and why: the packages' own metadata decide, as pip writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers
from helpers import call

from converters import route
from weights_bridge.errors import StageError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """installed(name, version, requirement…): what pip leaves of a package beside its code."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))

    def install(name: str, version: str, *requires: str) -> None:
        folder = place / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")

    return install


def directory(tmp_path: Path, model_type: str) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    return tmp_path


def test_the_wrapper_is_taken_where_there_is_one(tmp_path):
    chosen = route.choose(directory(tmp_path, "llama"))
    assert (chosen.path, list(chosen.others)) == ("wrapper", ["optimum"])
    assert "optimum is not installed" in chosen.others["optimum"] and "llama has one here" in str(chosen)
    assert "optimum" not in str(chosen)  # nobody asked; the manifest names it
    assert "pip install" not in str(chosen)  # which would replace this environment's transformers


def test_optimum_that_wants_other_transformers_is_not_taken_and_says_so(tmp_path, installed):
    installed("optimum", "2.1.0", "transformers>=4.29")
    installed("optimum-onnx", "0.1.0", "transformers<4.58.0,>=4.36")
    why = f"optimum-onnx 0.1.0 wants transformers <4.58.0,>=4.36, here is {transformers.__version__}"
    assert why in route.choose(directory(tmp_path, "llama")).others["optimum"]
    with pytest.raises(StageError, match=r"wrapper: none for bert; optimum: optimum-onnx 0.1.0 wants"):
        route.choose(directory(tmp_path, "bert"))


def test_optimum_is_taken_where_there_is_no_wrapper_and_it_fits(tmp_path, installed):
    installed("optimum", "2.9.0", "transformers>=4.29")
    installed("optimum-onnx", "0.9.0", "transformers>=4.36", 'transformers<4 ; extra == "old"')
    chosen = route.choose(directory(tmp_path, "bert"))
    assert chosen.path == "optimum" and chosen.others == {"wrapper": "none for bert"}
    assert route.choose(directory(tmp_path, "llama")).others == {"optimum": "not needed"}
    assert route.choose(directory(tmp_path, "llama"), "optimum").path == "optimum"


def test_half_of_it_is_not_enough(tmp_path, installed):
    installed("optimum", "2.9.0")
    assert "optimum-onnx is not installed" in route.choose(directory(tmp_path, "llama")).others["optimum"]


def test_the_command_refuses_in_a_line_and_names_paths(tmp_path):
    model = directory(tmp_path, "bert")
    answer = call("export", model, "--out", tmp_path / "out")
    assert answer.exit_code == 1 and "no way to export it" in answer.stderr
    answer = call("export", model, "--out", tmp_path / "out", "--path", "magic")
    assert answer.exit_code == 1 and "known: auto, optimum, wrapper" in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_prints_the_choice_and_the_contract_keeps_it(toy_model, tmp_path):
    answer = call("export", toy_model("llama"), "--out", tmp_path)
    assert answer.exit_code == 0 and "path wrapper: llama has one here" in answer.stderr
    kept = json.loads((tmp_path / "contract.json").read_text())["path"]
    assert kept["path"] == "wrapper" and "optimum is not installed" in kept["others"]["optimum"]
