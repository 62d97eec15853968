"""What a command says when it cannot go on.

A `StageError` is the user's to mend: one line, a hint, no traceback. Anything else is a bug and
keeps its traceback. Exit codes: 0 done, 1 could not do it, 2 used wrongly, 3 a budget was missed, 130 interrupted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LISTED_AT_MOST = 20


class StageError(Exception):
    """A failure that one line explains and a hint mends.

    Args:
        message: what, where, found and wanted.
        hint: how to mend it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class BudgetMissedError(StageError):
    """Something was measured and lies outside its budget, or a gate that must have passed has not."""

    exit_code = 3


class UsedWronglyError(StageError):
    """The command line itself is at fault: a flag's name, form or value."""

    exit_code = 2


class InterruptedCommandError(StageError):
    """Ctrl-C: the exit code is 128 + SIGINT's number, as shells expect it."""

    exit_code = 130


def shown(text: str) -> str:
    """Return a message for a terminal: names out of foreign files may hold line breaks and control characters.

    Line breaks that begin an indented line (a list, a hint) are the message's own and stay.
    """
    lines = re.split(r"\n(?=  )", text)
    return "\n".join(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line) for line in lines
    )


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, as names in a damaged file may hold."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Let every `StageError` raised inside name a file: where several are worked on, the reader must know which."""
    try:
        yield
    except StageError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


FRAMEWORKS = ("mlx", "mlx_lm", "torch", "transformers", "tokenizers", "jinja2", "onnx", "onnxruntime")


def not_installed(error: ModuleNotFoundError) -> StageError:
    """Return the error for a framework that is not there: adapters and model directories are written without any.

    Raises:
        ModuleNotFoundError: what is missing is no framework but a module of ours, which is a bug.
    """
    name = (error.name or "").partition(".")[0]
    if name not in FRAMEWORKS:
        raise error
    hint = "`pip install mlx-sentis` brings it; only adapters and model directories are written without it"
    return StageError(f"{name} is not installed here", hint=hint)


def counted(number: int, noun: str) -> str:
    """Return `1 row` or `3 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def all_at_once(
    heading: str, faults: Iterable[str], *, hint: str = "", kind: type[StageError] = StageError
) -> StageError:
    """Return one error that lists every fault, sorted (line 9 before line 10), capped at twenty with a count."""
    lines = sorted(faults, key=_natural)
    listed = "".join(f"\n  {line}" for line in lines[:LISTED_AT_MOST])
    rest = len(lines) - LISTED_AT_MOST
    return kind(heading + listed + (f"\n  … and {rest} more" if rest > 0 else ""), hint=hint)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sorting key by which numbers inside texts count as numbers."""
    return [(int(piece), "") if piece.isdecimal() else (0, piece) for piece in re.split(r"(\d+)", text)]


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, error: type[StageError] = StageError, also: str = ""
) -> StageError:
    """Return the error for a name nobody knows: it lists the known ones and the nearest.

    Args:
        kind: what the name is of, for example `stage`.
        name: the unknown one.
        known: all others.
        error: its class, which decides the exit code.
        also: what else the hint should say.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return error(f"unknown {kind} {name!r}", hint=f"{hint}known: {', '.join(names) or 'none'}{also}")
