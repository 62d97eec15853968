"""How every command speaks: stdout is the answer, stderr is the story, one line for a user's mistake.

Commands are declared with `@command(...)`; each gets `--json`, `-q` and `-h`, and receives an `Output`.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from weights_bridge.errors import StageError

ANSWERED = "mlx_sentis.answered"  # a command that fails under --json before it answered gives an error document


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
        """Say what is happening (stderr)."""
        if not self.quiet:
            click.echo(text, err=True)

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


def write_examples(formatter: click.HelpFormatter, examples: Iterable[str]) -> None:
    """End a help text in examples, each on one line however long, so that it can be copied."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{' ' * formatter.current_indent}$ mlx-sentis {example}\n")


class StageCommand(click.Command):
    """A command that turns a `StageError` into one line, a hint and its exit code."""

    examples: tuple[str, ...] = ()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StageError as error:
            click.echo(f"error: {error}", err=True)
            if ctx.params.get("as_json") and not ctx.meta.get(ANSWERED):
                failure = {"schema": "mlx-sentis/error/1", "error": error.message, "hint": error.hint}
                click.echo(json.dumps(failure | {"exit_code": error.exit_code}, indent=2, ensure_ascii=False))
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # the reader (head, less) left: not our failure
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            write_examples(formatter, self.examples)


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
