"""How every command speaks: stdout is the answer, stderr is the story, one line for a user's mistake.

Commands are declared with `@command(...)`; each gets `--json`, `-q` and `-h`, and receives an `Output`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

import click

from weights_bridge.errors import InterruptedCommandError, StageError, not_installed, shown

ANSWERED = "mlx_sentis.answered"  # a command that fails under --json before it answered gives an error document


class FiniteFloat(click.FloatRange):
    """An option's number with an end: a budget of NaN passes or fails everything, and JSON writes no infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


@dataclass(frozen=True)
class Output:
    """Where a command's words go.

    Attributes:
        as_json: one JSON document on stdout instead of text.
        quiet: no story on stderr.
    """

    as_json: bool = False
    quiet: bool = False

    def story(self, text: str) -> None:
        """Say what is happening (stderr); nobody listening any more is no reason to end the work."""
        if self.quiet:
            return
        try:
            click.echo(text, err=True)
        except BrokenPipeError:
            reader_left(sys.stderr)

    def answer(self, name: str, document: dict[str, Any], text: str) -> None:
        """Give the command's answer (stdout): the document under `--json`, the text otherwise.

        Args:
            name: the schema's middle part, `mlx-sentis/<name>/1`.
            document: what machines read.
            text: what people read.
        """
        if (context := click.get_current_context(silent=True)) is not None:
            context.meta[ANSWERED] = True
        if self.as_json:
            document = {"schema": f"mlx-sentis/{name}/1"} | document
            click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            click.echo(text)


def reader_left(stream: TextIO) -> None:
    """Send what is still written to a stream nowhere: its reader (head, less, a dashboard) has gone."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def write_examples(formatter: click.HelpFormatter, examples: Iterable[str]) -> None:
    """End a help text in examples, each on one line however long, so that it can be copied."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{' ' * formatter.current_indent}$ mlx-sentis {example}\n")


class StageCommand(click.Command):
    """A command that turns a `StageError` into one line, a hint and its exit code; Ctrl-C is one line and 130."""

    examples: tuple[str, ...] = ()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StageError as error:
            self._fail(ctx, error)
        except ModuleNotFoundError as error:
            self._fail(ctx, not_installed(error))
        except click.UsageError as error:
            if ctx.params.get("as_json"):
                _fail_in_json(error.format_message(), "see --help", error.exit_code)
            raise
        except KeyboardInterrupt:  # click itself would say "Aborted!" and exit 1
            self._fail(ctx, InterruptedCommandError("interrupted"))
        except BrokenPipeError:  # the reader (head, less) left: not our failure
            reader_left(sys.stdout)
            ctx.exit(0)

    @staticmethod
    def _fail(ctx: click.Context, error: StageError) -> NoReturn:
        click.echo(f"error: {shown(str(error))}", err=True)
        if ctx.params.get("as_json") and not ctx.meta.get(ANSWERED):
            _fail_in_json(error.message, error.hint, error.exit_code)
        ctx.exit(error.exit_code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked = list(args)  # what follows takes words off it
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "--json" in asked:
                _fail_in_json(error.format_message(), "see --help", error.exit_code)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            write_examples(formatter, self.examples)


def _fail_in_json(message: str, hint: str, exit_code: int) -> None:
    failure = {"schema": "mlx-sentis/error/1", "error": message, "hint": hint, "exit_code": exit_code}
    click.echo(json.dumps(failure, indent=2, ensure_ascii=False))


def command(name: str, *, examples: tuple[str, str]) -> Callable[[Callable[..., Any]], StageCommand]:
    """Declare a command whose function takes `output` first.

    Args:
        name: the word on the command line.
        examples: two command lines without the program's name; `--help` ends in them.
    """

    def declare(function: Callable[..., Any]) -> StageCommand:
        @functools.wraps(function)
        def run(*, as_json: bool, quiet: bool, **arguments: Any) -> Any:
            return function(Output(as_json, quiet), **arguments)

        options = click.option("-q", "--quiet", is_flag=True, help="No story on stderr.")(run)
        options = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(options)
        settings = {"help_option_names": ["-h", "--help"]}
        made = click.command(name, cls=StageCommand, context_settings=settings)(options)
        made.examples = examples
        return made

    return declare
