"""Values as C# literals. All is ASCII: a file's encoding, which editors and version control change, decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from weights_bridge.errors import UsedWronglyError

WIDTH = 112  # characters of a line behind its indent
LEAST, MOST = -(2**31), 2**31 - 1
DEEP = " " * 12  # the indent of a value that takes lines of its own
INTEGERS, TEXTS = "IReadOnlyList<int>", "IReadOnlyList<string>"
Field = tuple[str, str, str, str]  # summary, type, name, value
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
# first parts of assemblies that .NET and Unity bring: two of one name are not loaded, and the kit is named like one
TAKEN = frozenset(
    {"Microsoft", "Mono", "System", "Unity", "UnityEditor", "UnityEngine", "mscorlib", "netstandard", "nunit"}
)
LONGEST = 100  # with its endings it is a file's name, and Windows ends a path at 260
# types that the kit's sources use: a part of the namespace of one of these names would hide it from them
HIDDEN_BY_A_NAMESPACE = frozenset(
    re.findall(
        r"\w+",
        "Action Application ArgumentException ArgumentNullException ArgumentOutOfRangeException Array Assert "
        "AssetDatabase BackendType BitConverter Buffer CallerFilePath ComputeTensorData Convert CultureInfo DataType "
        "DateTime Debug Dictionary Directory EditorApplication Encoding Environment EqualityComparer Exception File "
        "FileStream FileUtil FormatException FormattableString Func GraphicsDeviceType HuggingFaceParser IComparer "
        "IDisposable IEnumerable IReadOnlyDictionary IReadOnlyList ITokenizer ImportAssetOptions "
        "InvalidOperationException KeyValuePair List LogType Math Mathf Model ModelAsset ModelLoader NativeArray "
        "NumberStyles OneTimeSetUp PackageInfo Path SHA256 Stopwatch StringBuilder StringComparer StringComparison "
        "SystemInfo Tensor TensorShape Test TestFixture UTF8Encoding Worker",
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
    if len(name) > LONGEST:
        raise UsedWronglyError(
            f"--namespace: found {len(name)} letters, wanted at most {LONGEST}", hint="choose another"
        )
    if (first := name.split(".")[0]) in TAKEN:
        hint = "put a name of your own in front, for example MyGame"
        raise UsedWronglyError(f"--namespace {name!r}: assemblies of .NET or Unity are called {first}", hint=hint)
    if taken := sorted(KEYWORDS.intersection(name.split("."))):
        raise UsedWronglyError(
            f"--namespace {name!r}: {', '.join(taken)} is a word of C# itself", hint="choose another"
        )
    if hidden := sorted(HIDDEN_BY_A_NAMESPACE.intersection(name.split("."))):
        hint = "choose another name for that part"
        raise UsedWronglyError(f"--namespace {name!r}: it would hide the type {', '.join(hidden)}", hint=hint)


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


def number(value: float) -> str:
    """Return a float32 as the shortest literal that reads back as the same one."""
    return f"{np.float32(value)!s}f"


def head(source: str) -> str:
    """Return what stands at the top of a file that is written from another one."""
    return f"""// <auto-generated>
// Written by `mlx-sentis unity` from {source}. Changes are lost when it is written again.
// </auto-generated>
"""


def constants(source: str, name: str, summary: str, fields: Iterable[Field]) -> str:
    """Return a static class of read-only fields in the namespace `MlxSentis`.

    Args:
        source: the file that the values come from.
        name: of the class.
        summary: what it holds, a sentence.
        fields: in order.
    """
    body = "\n\n".join(
        f"        /// <summary>{what}</summary>\n        public static readonly {kind} {field} ={value};"
        for what, kind, field, value in ((w, k, f, v if v.startswith("\n") else f" {v}") for w, k, f, v in fields)
    )
    return f"""{head(source)}
using System.Collections.Generic;

namespace MlxSentis
{{
    /// <summary>{summary}</summary>
    public static class {name}
    {{
{body}
    }}
}}
"""
