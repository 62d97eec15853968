"""C# literals: what Python writes, C# must read back; what it cannot hold is refused."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path

import pytest

from converters.unity import csharp
from weights_bridge.errors import UsedWronglyError


def test_a_text_is_one_literal_a_line_in_ascii() -> None:
    assert csharp.text('a "b" \\\n\tc\r') == '"a \\"b\\" \\\\\\n" +\n"\\tc\\r"'
    assert csharp.text("é橋👋\x00\u2028") == '"\\u00E9\\u6A4B\\uD83D\\uDC4B\\u0000\\u2028"'
    assert csharp.text("a\n\nb\n", "  ") == '"a\\n" +\n  "\\n" +\n  "b\\n"'
    assert csharp.text("") == '""'
    assert csharp.text(None) == "null"


def test_arrays_are_wrapped_and_an_empty_one_has_a_size() -> None:
    assert csharp.integers([]) == "new int[0]"
    assert csharp.integers([1, -2], "  ") == "new int[]\n  {\n      1, -2\n  }"
    lines = csharp.integers(list(range(1000, 1100))).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 4 + csharp.WIDTH
    assert [int(item) for item in "".join(lines[2:-1]).split(",")] == list(range(1000, 1100))
    assert csharp.texts(["a,", '"']) == 'new string[]\n{\n    "a,", "\\""\n}'


NAMES = ["", "1Game", "My Game", "My-Game", "My..Game", "Ärger", "My.class", "a;b", "MyGame.Model", "Path", "A.List.B"]
NAMES += ["System", "System.Npc", "Unity", "UnityEngine", "UnityEditor.Npc", "mscorlib", "A" * 101]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(UsedWronglyError, match="--namespace"):
        csharp.require_namespace(name)
    csharp.require_namespace("MyGame.Npc_2")


def test_every_type_that_the_sources_use_may_not_be_hidden() -> None:
    """`Model` in `namespace MyGame.Model` is the namespace: looked at is what stands before a dot or behind `new`."""
    sources = importlib.resources.files("converters.unity") / "sources"
    texts = [file.read_text(encoding="utf-8") for file in Path(str(sources)).rglob("*.cs")]
    code = "\n".join(re.sub(r"//.*|\"(?:\\\\.|[^\"\\\\])*\"", "", text) for text in texts)
    own = set(re.findall(r"\b(?:class|enum|struct)\s+(\w+)", code)) | {"GateRules", "ModelConstants", "PromptContract"}
    own |= set(re.findall(r"\b[\w<>\[\]]+\s+([A-Z]\w*)\s*[({=;]", code))  # members
    own |= set(re.findall(r"\b([A-Z]\w*)<T>\(", code))
    own |= set(re.findall(r"^using ([A-Z]\w*)", code, re.M)) | {"PromptSamples", "PromptSample"}
    used = set(re.findall(r"(?<![.\w])([A-Z]\w+)(?=\.\w|<\w)", code)) | set(re.findall(r"\bnew ([A-Z]\w+)[(<]", code))
    assert used - own <= csharp.HIDDEN_BY_A_NAMESPACE
