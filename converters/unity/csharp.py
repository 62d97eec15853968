"""Values as C# literals. All is ASCII: a file's encoding, which editors and version control change, decides nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weights_bridge.errors import UsedWronglyError

WIDTH = 112  # characters of a line behind its indent
LEAST, MOST = -(2**31), 2**31 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# C# language reference, keywords; contextual ones may be names
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "abstract as base bool break byte case catch char checked class const continue decimal default delegate do "
        "double else enum event explicit extern false finally fixed float for foreach goto if implicit in int "
        "interface internal is lock long namespace new null object operator out override params private protected "
        "public readonly ref return sbyte sealed short sizeof stackalloc static string struct switch this throw true "
        "try typeof uint ulong unchecked unsafe ushort using virtual void volatile while",
    )
)


def require_namespace(name: str) -> None:
    """Require that a name can be a C# namespace and an assembly's file name.

    Raises:
        UsedWronglyError: it cannot.
    """
    if not NAME.fullmatch(name):
        hint = "letters, digits and _, parts joined by dots, for example MyGame.Guard"
        raise UsedWronglyError(f"--namespace {name!r}: no C# name", hint=hint)
    if taken := sorted(KEYWORDS.intersection(name.split("."))):
        raise UsedWronglyError(
            f"--namespace {name!r}: {', '.join(taken)} is a word of C# itself", hint="choose another"
        )


def text(value: str | None, indent: str = "") -> str:
    """Return a text as a literal, one line of it a line of code; None is `null`.

    Args:
        value: any text without lone surrogates.
        indent: what stands before every line but the first.
    """
    if value is None:
        return "null"
    lines = [line for line in re.split(r"(?<=\n)", value) if line] or [""]
    return f" +\n{indent}".join(f'"{"".join(map(_escaped, line))}"' for line in lines)


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def flag(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def integers(values: Sequence[int], indent: str = "") -> str:
    """Return whole numbers of 32 bits as an array initialiser, wrapped."""
    return _array("int", list(map(str, values)), indent)


def texts(values: Sequence[str], indent: str = "") -> str:
    """Return texts as an array initialiser, wrapped."""
    return _array("string", [text(value) for value in values], indent)


def _array(kind: str, items: Sequence[str], indent: str) -> str:
    if not items:
        return f"new {kind}[0]"
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > WIDTH - len(indent):
            lines.append("")
        lines[-1] += f"{item}, "
    body = "".join(f"\n{indent}    {line.rstrip()}" for line in lines)
    return f"new {kind}[]\n{indent}{{{body.removesuffix(',')}\n{indent}}}"
