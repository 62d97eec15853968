"""The parts of README.md that are generated: between `<!-- NAME -->` and `<!-- /NAME -->`. Run it to renew them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

import cli
from converters import families

README = Path(__file__).resolve().parent.parent / "README.md"
WIDTH = "80"  # click wraps at the terminal's width


def main() -> None:
    """Write README.md anew when a block has changed."""
    text = README.read_text(encoding="utf-8")
    new = renewed(text)
    if new != text:
        README.write_text(new, encoding="utf-8")
    print("README.md:", "up to date" if new == text else "blocks renewed")


def renewed(text: str) -> str:
    """Return a README's text with every generated block as it should be.

    Raises:
        ValueError: a block's marks are missing or occur twice.
    """
    for name, block in {"families": families_table(), "commands": command_list(), "help": help_blocks()}.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(marked.findall(text)) != 1:
            raise ValueError(f"README.md: wanted one pair of marks <!-- {name} --> and <!-- /{name} -->")
        text = marked.sub(lambda found, block=block: f"{found[1]}{block}\n{found[2]}", text)
    return text


def families_table() -> str:
    """Return the registry as a table: family and architecture by stage."""
    heading = ("family", "architecture", *families.STAGES)
    lines = [heading, ("---",) * 2 + (":-:",) * len(families.STAGES)]
    for row in families.table():
        marks = tuple("●" if stage in row["stages"] else "" for stage in families.STAGES)
        lines.append((row["family"], f"`{row['architecture']}`", *marks))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command_list() -> str:
    """Return one line per command, in the order of `mlx-sentis --help`."""
    lines = [f"| `mlx-sentis {name}` | {line} |" for name, (_, line) in cli.COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *lines])


def help_blocks() -> str:
    """Return the `--help` of the program and of every command as code blocks."""
    blocks = []
    for words in ((), *command_paths()):
        name = " ".join(("mlx-sentis", *words))
        blocks.append(f"#### `{name}`\n\n```text\n{help_of(words)}\n```")
    return "\n\n".join(blocks)


def command_paths() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, of groups and of the commands in them."""
    context = click.Context(cli.main)
    for name in cli.main.list_commands(context):
        yield (name,)
        command = cli.main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.list_commands(context))


def help_of(words: tuple[str, ...]) -> str:
    """Return what `mlx-sentis WORDS --help` prints on a terminal of 80 columns.

    Raises:
        RuntimeError: it failed.
    """
    result = CliRunner(env={"COLUMNS": WIDTH}).invoke(cli.main, [*words, "--help"], prog_name="mlx-sentis")
    if result.exit_code:
        raise RuntimeError(f"mlx-sentis {' '.join(words)} --help: exit {result.exit_code}")
    return result.output.rstrip()


if __name__ == "__main__":
    main()
