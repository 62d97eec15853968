"""Out-of-distribution prompts: from the command line, from one question on a terminal, or none (generic ones then)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from mlx_sentis.prepare.jsonl import lines_of
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.files import read_json

DEFAULT = "default"
KEYS = ("prompt", "caption", "user", "text")
FILES = (".txt", ".jsonl", ".json", ".md")
QUESTION = (
    "Which 2 or 3 prompts would you really give this model? One a line, an empty line ends.\n"
    f"({DEFAULT!r} takes a few generic ones.)"
)
WEAKER = "category 2 uses generic prompts: better than none, but prompts you would really give make a stronger test"


def ood_prompts(
    given: Sequence[str], *, may_ask: bool, say: Callable[[str], None], answers: TextIO | None = None
) -> list[str] | None:
    """Return the user's out-of-distribution prompts, verbatim; None when generic ones are wanted.

    Args:
        given: the values of `--ood`: texts, files, or `default`.
        may_ask: ask once when nothing is given and a person sits at a terminal.
        say: shows the question.
        answers: where replies come from; standard input by default.

    Raises:
        UsedWronglyError: an empty prompt, a file that is not there, a folder, a NUL character, or `default` beside
            others.
        StageError: a file without prompts.
    """
    if given:
        return _given(given)
    if not may_ask:
        return None
    say(QUESTION)
    found = []
    for line in answers or sys.stdin:
        if not line.strip():
            break
        found.append(line.rstrip("\r\n"))
        if found == [DEFAULT]:
            break
    return None if found in ([], [DEFAULT]) else found


def is_terminal() -> bool:
    """Tell whether a person can see a question and reply."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _given(given: Sequence[str]) -> list[str] | None:
    if DEFAULT in given:
        if len(given) > 1:
            raise UsedWronglyError("--ood default beside other prompts", hint="give your own prompts, or default alone")
        return None
    return [prompt for value in given for prompt in _prompts_of(value)]


def _prompts_of(value: str) -> list[str]:
    if not value.strip():
        raise UsedWronglyError("--ood: found an empty prompt", hint=f"give a text, a file, or {DEFAULT}")
    if "\0" in value:
        raise UsedWronglyError(f"--ood {value!r}: the text has a NUL character", hint="give a text without it")
    path = Path(value) if "\n" not in value else None
    if path is not None and _is(path, Path.is_dir):
        raise UsedWronglyError(f"--ood {value}: is a folder", hint="give a file in it, or a prompt as a text")
    if path is None or not _is(path, Path.is_file):
        if path is not None and path.suffix in FILES and " " not in value:
            raise UsedWronglyError(f"--ood {value}: no such file", hint="give an existing file, or a prompt as a text")
        return [value]
    found = {".jsonl": _jsonl, ".json": _array}.get(path.suffix, _text)(path)
    if not found:
        raise StageError(f"{path}: no prompt in it", hint="one prompt a line")
    return found


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    """Tell whether there is such a file or folder; what is too long for a name is a text."""
    try:
        return kind(path)
    except OSError:
        return False


def _text(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: cannot be read as UTF-8: {error}", hint="save it again as UTF-8") from None
    return [line for line in text.splitlines() if line.strip()]


def _array(path: Path) -> list[str]:
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(item, str) and item.strip() for item in found):
        raise StageError(f"{path}: wanted an array of texts", hint='["…", "…"], or a text file with one prompt a line')
    return found


def _jsonl(path: Path) -> list[str]:
    found = []
    for number, item in lines_of(path):
        if item is None:
            continue
        prompt = None if isinstance(item, str) else next((item[key] for key in KEYS if key in item), None)
        if not isinstance(prompt, str) or not prompt.strip():
            why = item if isinstance(item, str) else f"no text under {', '.join(KEYS)}"
            raise StageError(f"{path}:{number}: {why}", hint='one object a line, {"prompt": "…"}')
        found.append(prompt)
    return found
