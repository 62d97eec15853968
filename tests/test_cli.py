"""The command line as a whole: names, help, exit codes, and one document under --json."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from helpers import call, edit_json

import cli

GRAPH_COMMANDS = ["info", "extract", "cut", "fix-shape", "rename-io", "inline", "inject-kv"]
GROUP_COMMANDS = ["models list", "models get", *(f"graph {name}" for name in GRAPH_COMMANDS)]
GRAPH_FLAGS = {
    "extract": ["--to", "y"],
    "cut": [],
    "fix-shape": ["--size", "b=1"],
    "rename-io": ["--name", "x=y"],
    "inline": [],
    "inject-kv": [],
}
NAMES = [*cli.COMMANDS, *GROUP_COMMANDS]


def test_help_lists_every_command_once_and_ends_in_two_examples() -> None:
    for flag in ("-h", "--help"):
        result = call(flag)
        lines = [line.strip() for line in result.stdout.rstrip().splitlines()]
        assert result.exit_code == 0
        for name in cli.COMMANDS:
            assert sum(line.split()[:1] == [name] for line in lines) == 1, name
        assert [line.startswith("$ mlx-sentis ") for line in lines[-3:]] == [False, True, True]


@pytest.mark.parametrize("name", NAMES)
def test_every_commands_help_works_and_ends_in_two_examples(name: str) -> None:
    for flag in ("-h", "--help"):
        result = call(*name.split(), flag)
        assert result.exit_code == 0, result.output
        lines = [line.strip() for line in result.stdout.rstrip().splitlines()]
        assert [line.startswith("$ mlx-sentis ") for line in lines[-3:]] == [False, True, True], name


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_json_and_quiet(name: str) -> None:
    command: click.Command | None = cli.main
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--json", "-q"} <= options or isinstance(command, click.Group)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_the_line_in_the_list_is_the_commands_own_first_sentence_or_tells_as_much(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    assert command.help
    assert cli.COMMANDS[name][1].endswith(".")


def test_the_version_is_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.2.3" if name == "mlx-sentis" else "")
    assert call("--version").stdout == "mlx-sentis 1.2.3\n"


def test_a_checkout_that_is_not_installed_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    result = call("--version")
    assert (result.exit_code, result.stdout.startswith("mlx-sentis")) == (0, True)


@pytest.mark.parametrize(
    ("typed", "near"), [("trian", "train"), ("evaluate", "eval"), ("prepair", "prepare"), ("doctr", "doctor")]
)
def test_an_unknown_command_names_the_nearest_and_is_wrong_use(typed: str, near: str) -> None:
    result = call(typed)
    assert result.exit_code == 2
    assert f"unknown command {typed!r}; did you mean {near}?" in result.stderr
    assert "unknown command 'zzzzz'\n" in call("zzzzz").stderr


def test_no_command_at_all_shows_the_help() -> None:
    assert "Commands:" in call().output


@pytest.mark.parametrize(
    "words",
    [
        ["recipe"],
        ["prepare", "rows.jsonl"],
        ["train", "--data", "x"],
        ["train", "--data", "x", "--out", "y", "--progress", "loud"],
        ["scan", "a", "b"],
        ["models", "get"],
        ["graph", "cut", "m.onnx"],
        ["graph", "extract", "m.onnx", "--out", "part.onnx"],
        ["run", "--colour"],
    ],
)
def test_wrong_use_is_exit_2_and_touches_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["recipe", "gone"],
        ["models", "get", "smollm"],
        ["prepare", "gone.jsonl", "--model", "gone", "--out", "out"],
        ["show-mask", "gone"],
        ["train", "--data", "gone", "--out", "out"],
        ["train", "--data", "gone", "--out", "out", "--config", "gone.toml"],
        ["bridge", "gone"],
        ["export", "gone", "--out", "out"],
        ["swap", "gone"],
        ["scan", "gone.onnx"],
        ["fix", "gone.onnx", "--out", "out.onnx"],
        ["explain", "gone.onnx"],
        *(["graph", name, "gone.onnx", *flags, "--out", "out.onnx"] for name, flags in GRAPH_FLAGS.items()),
        ["graph", "info", "gone.onnx"],
        ["parity", "gone"],
        ["eval", "gone"],
        ["run", "gone.toml"],
        ["run", "--set", "model.name=gone"],
        ["run", "--out", "out", "--from", "train"],
    ],
)
def test_a_users_mistake_is_one_line_a_hint_exit_1_and_touches_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = call(*words)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    error = result.stderr[result.stderr.index("error: ") :]
    assert "\n  hint: " in error
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "--data", "gone", "--out", "out", "--set", "train.epoch=1"], "did you mean train.epochs?"),
        (["run", "--set", "trian.epochs=1"], "did you mean train?"),
        (["run", "--set", "train.epochs"], "not of the form section.key=value"),
        (["run", "--set", "export.dtype=fp8"], "found 'fp8', wanted one of fp32, fp16"),
        (["run", "--out", "out", "--from", "trian"], "did you mean train?"),
    ],
)
def test_a_flag_that_is_wrong_by_itself_is_exit_2_and_says_what_is_right(
    words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr and "\n  hint: " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_finding_is_exit_3_and_names_the_node(tmp_path: Path) -> None:
    import onnx

    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> agraph (float[1, 4, 4] x) => (float[1] y) { y = Det (x) }'
    )
    onnx.save(graph, tmp_path / "det.onnx")
    result = call("scan", tmp_path / "det.onnx")
    assert result.exit_code == 3, result.output
    assert "Det" in result.output


@pytest.mark.parametrize("name", ["families", "models list"])
def test_json_is_one_document_with_a_schema(name: str) -> None:
    result = call(*name.split(), "--json", "-q")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"] == f"mlx-sentis/{name.replace(' ', '-')}/1"
    assert result.stderr == ""


def test_recipe_as_json_is_the_recipe(toy_model: Callable[[str], Path]) -> None:
    recipe = json.loads(call("recipe", toy_model("qwen3"), "--json").stdout)
    assert (recipe["schema"], recipe["architecture"]) == ("mlx-sentis/recipe/1", "qwen3")


def test_a_refusal_under_json_is_one_document(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    model = Path(shutil.copytree(toy_model("llama"), tmp_path / "model"))
    edit_json(model / "config.json", lambda config: config.update(model_type="lama"))
    result = call("recipe", model, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == 1
    assert document["schema"] == "mlx-sentis/error/1"
    assert "did you mean llama?" in document["hint"] and "did you mean llama?" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGUSR1, 0)])
def test_a_signal_while_a_command_is_imported_is_no_other_than_later(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = cli.importlib.import_module

    def signalled(name: str) -> object:
        os.kill(os.getpid(), number)
        return load(name)

    monkeypatch.setattr(cli.importlib, "import_module", signalled)
    result = CliRunner().invoke(cli.main, ["train", "--help"])
    assert (result.exit_code, "Aborted" in result.output) == (code, False), result.output
