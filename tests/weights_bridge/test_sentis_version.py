"""A package version is read one way wherever it is taken, and an unknown one gets one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from helpers import call
from sentis_dumps import write_graph

import cli
from converters.facts import facts, oldest_first, versions
from weights_bridge.errors import StageError
from weights_bridge.sentis_version import SENTIS_VERSION, minor_version
from weights_bridge.settings import resolve


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("2.6", "2.6"),
        ("2.6.0", "2.6"),
        ("2.5.3", "2.5"),
        ("2.4.1", "2.4"),
        (" 2.6.1 ", "2.6"),
        ("2.6.1-pre.2", "2.6"),
        ("2.60.0", "2.60"),
        ("12.6.0", "12.6"),
        ("2.6.", "2.6."),
        ("2.6.x", "2.6.x"),
        ("2.6.0.1", "2.6.0.1"),
        ("2", "2"),
        ("six", "six"),
    ],
)
def test_a_patch_is_read_as_its_minor_version_and_what_is_no_version_as_itself(typed: str, read: str) -> None:
    assert minor_version(typed) == read


def test_a_tenth_minor_version_is_newer_than_the_ninth() -> None:
    assert oldest_first(["2.10", "3.0", "2.9"]) == ["2.9", "2.10", "3.0"]


def test_facts_and_settings_take_a_patch_as_well() -> None:
    assert facts("2.6.1") is facts("2.6")
    assert resolve(overrides=("export.sentis=2.5.3",)).settings.export.sentis == "2.5"
    with pytest.raises(StageError, match=r"export\.sentis: found '9\.9\.1', wanted one of 2\.4, 2\.5, 2\.6"):
        resolve(overrides=("export.sentis=9.9.1",))


def test_the_settings_know_the_versions_that_have_facts() -> None:
    for version in versions():
        assert resolve(overrides=(f"export.sentis={version}.0",)).settings.export.sentis == version


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())


def test_every_option_that_takes_a_version_reads_it_with_the_one_parser() -> None:
    taking = {
        name: option.type
        for name, command in all_commands()
        for option in command.params
        if isinstance(option, click.Option) and "--sentis" in option.opts
    }
    assert set(taking) >= {"export", "scan", "explain", "fix", "parity", "quantise", "probes"}
    assert {name for name, kind in taking.items() if kind is not SENTIS_VERSION} == set()


@pytest.fixture
def asking(tmp_path: Path) -> dict[str, list[object]]:
    """Commands that answer about one small graph, without the version."""
    model = write_graph(
        tmp_path / "m.onnx",
        '<ir_version: 10, opset_import: ["": 15]> g (float[2, 4] x) => (float[2, 3] y) { y = MatMul(x, w) }',
        w=np.ones((4, 3), np.float32),
    )
    fixture = tmp_path / "f.npz"
    np.savez(fixture, **{"in::x": np.ones((2, 4), np.float32)})  # pyright: ignore[reportArgumentType]
    return {
        "scan": ["scan", model],
        "explain": ["explain", model],
        "fix": ["fix", model, "--out", tmp_path / "out.onnx"],
        "parity": ["parity", "--model", model, "--fixture", fixture, "--edge", "b"],
        "quantise": ["quantise", model, "--fixture", fixture],
    }


@pytest.mark.parametrize("name", ["scan", "explain", "fix", "parity", "quantise"])
def test_a_command_answers_about_the_minor_version(asking: dict[str, list[object]], name: str) -> None:
    done = call(*asking[name], "--sentis", "2.5.3", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["facts"] if name == "parity" else document)["sentis"] == "2.5"


@pytest.mark.parametrize("name", ["scan", "explain", "fix", "parity", "quantise", "export"])
@pytest.mark.parametrize("version", ["9.9.1", "six"])
def test_an_unknown_version_gets_the_same_words_everywhere(
    asking: dict[str, list[object]], tmp_path: Path, name: str, version: str
) -> None:
    words = asking.get(name, ["export", tmp_path, "--out", tmp_path / "onnx"])
    done = call(*words, "--sentis", version)
    said = done.stdout if name == "parity" else done.stderr
    assert done.exit_code == (3 if name == "parity" else 1)  # a table may be of a version that was only measured
    assert f"no facts about Sentis {minor_version(version)}: not predicted" in said
    assert "known: 2.4, 2.5, 2.6" in said and "a patch is read as its minor version, 2.6.1 as 2.6" in said


@pytest.mark.parametrize("name", ["scan", "explain", "fix", "parity", "quantise"])
def test_an_empty_version_is_a_wrong_use_and_not_the_newest(asking: dict[str, list[object]], name: str) -> None:
    done = call(*asking[name], "--sentis", "")
    assert done.exit_code == 2 and "'--sentis': it is empty" in done.stderr
