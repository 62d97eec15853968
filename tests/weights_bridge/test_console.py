"""How a command speaks: stdout, stderr, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import cli
from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, StageError

ROOT = Path(__file__).parents[2]


@command("say", examples=("say hello", "say --json hello"))
@click.argument("word")
def say(output: Output, word: str) -> None:
    """Say a word."""
    output.story("thinking")
    if word == "bad":
        raise StageError("word: found 'bad', wanted another", hint="say good")
    if word == "missed":
        raise BudgetMissedError("70 dB is below 90 dB")
    if word == "steer":
        raise StageError("\x1b[2Jname\r\x07 ñ東: not a tensor\n  of ours")
    if word == "odd":
        raise click.UsageError("give an even word")
    if word == "lack":
        raise ModuleNotFoundError("No module named 'mlx.core'", name="mlx.core")
    if word == "lack ours":
        raise ModuleNotFoundError("No module named 'parity.typo'", name="parity.typo")
    if word == "bug":
        raise RuntimeError("a bug")
    if word == "ctrl-c":
        raise KeyboardInterrupt
    output.answer("word", {"word": word}, f"the word is {word}")


def run(*words: str) -> Result:
    return CliRunner().invoke(say, list(words))


def test_the_answer_goes_to_stdout_and_the_story_to_stderr() -> None:
    result = run("ñ東")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "the word is ñ東\n", "thinking\n")


def test_quiet_leaves_the_answer_alone() -> None:
    result = run("-q", "yes")
    assert (result.stdout, result.stderr) == ("the word is yes\n", "")


def test_json_is_one_document_with_a_schema_in_real_characters() -> None:
    result = run("--json", "ñ東")
    assert json.loads(result.stdout) == {"schema": "mlx-sentis/word/1", "word": "ñ東"}
    assert "ñ東" in result.stdout
    assert next(iter(json.loads(result.stdout))) == "schema"


def test_a_users_mistake_is_a_line_a_hint_and_exit_1() -> None:
    result = run("-q", "bad")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: word: found 'bad', wanted another\n  hint: say good\n"


def test_a_missed_budget_is_exit_3() -> None:
    result = run("-q", "missed")
    assert (result.exit_code, result.stderr) == (3, "error: 70 dB is below 90 dB\n")


def test_control_c_is_one_line_and_130_as_shells_expect() -> None:
    result = run("-q", "ctrl-c")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "error: interrupted\n")
    told = json.loads(run("-q", "--json", "ctrl-c").stdout)
    assert (told["schema"], told["exit_code"]) == ("mlx-sentis/error/1", 130)


def test_wrong_use_is_exit_2() -> None:
    assert run().exit_code == 2
    assert run("a", "b").exit_code == 2
    assert run("--colour", "a").exit_code == 2


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1", "1e999"])
@pytest.mark.parametrize(
    "words", [("parity", "--budget"), ("quantise", "m.onnx", "--limit-mib"), ("watch", ".", "--every")]
)
def test_a_number_without_an_end_is_a_wrong_use(words: tuple[str, ...], number: str) -> None:
    result = CliRunner().invoke(cli.main, [*words, number, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["schema"]) == (2, "mlx-sentis/error/1")


def test_wrong_use_under_json_is_a_document_too() -> None:
    for words, said in ((["--json"], "WORD"), (["--colour", "a", "--json"], "--colour"), (["--json", "odd"], "even")):
        result = run(*words)
        document = json.loads(result.stdout)
        assert (result.exit_code, document["exit_code"], document["schema"]) == (2, 2, "mlx-sentis/error/1")
        assert said in document["error"] and said in result.stderr
    assert run("--colour", "a").stdout == ""


def test_what_a_file_calls_itself_cannot_steer_the_terminal() -> None:
    result = run("-q", "steer")
    assert result.stderr == "error: \\x1b[2Jname\\r\\x07 ñ東: not a tensor\n  of ours\n"


def test_a_framework_that_is_not_installed_is_one_line_and_a_missing_module_of_ours_a_bug() -> None:
    result = run("-q", "lack")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "error: mlx is not installed here")
    assert isinstance(run("lack ours").exception, ModuleNotFoundError)


def test_a_bug_keeps_its_traceback() -> None:
    assert isinstance(run("bug").exception, RuntimeError)


def test_help_ends_in_two_examples() -> None:
    for flag in ("-h", "--help"):
        lines = [line.strip() for line in run(flag).stdout.rstrip().splitlines()]
        assert lines[-3:] == ["Examples:", "$ mlx-sentis say hello", "$ mlx-sentis say --json hello"]


LONG = """
from weights_bridge.console import command
@command("long", examples=("a", "b"))
def long(output):
    "Say much."
    for line in range(100_000):
        output.answer("x", {}, "a long line of text to fill a pipe")
long()
"""


def test_a_reader_that_leaves_is_no_failure() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


CHATTY = """
from weights_bridge.console import command
@command("chatty", examples=("a", "b"))
def chatty(output):
    "Say much on the way."
    for line in range(10_000):
        output.story("a long line of text to fill a pipe")
    output.answer("x", {}, "done")
chatty()
"""


def test_a_story_that_nobody_hears_does_not_end_the_work() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHATTY], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        process.stderr.close()
        assert process.stdout.read() == b"done\n"
        assert process.wait(30) == 0
