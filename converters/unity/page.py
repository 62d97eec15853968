"""The kit's own page: what lies where, and the first lines of code."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable
from string import Template

from converters.unity.helpers import FOLDER, HELPERS

PLAIN_ANSWER = """        decoder.Begin(tokenizer.Encode(PromptBuilder.Build(text)));
        while (decoder.Ids.Count < 64 && decoder.Step())
        {
            yield return null;
        }

        Debug.Log(tokenizer.Decode(decoder.Ids));"""
GATED_ANSWER = """        decoder.Begin(tokenizer.Encode(PromptBuilder.Build(text)), GateRules.RefusalId);
        while (decoder.Ids.Count < 64 && decoder.Step())
        {
            yield return null;
        }

        string answer = tokenizer.Decode(decoder.Ids);
        bool isCall = CallGate.TryPass(answer, decoder.Margin, out ToolCall call);
        Debug.Log(isCall ? call.Name : "nothing to do: " + answer);"""


def kit_page(namespace: str, sources: Iterable[str], files: Iterable[str]) -> str:
    """Return the page.

    Args:
        namespace: of the kit.
        sources: paths of its sources, which decide what it speaks of.
        files: paths of its large files; without a model the page is of the prompt, or of the tools, alone.
    """
    known = set(sources)
    has_gate = "Runtime/CallGate.cs" in known
    words = {
        "namespace": namespace,
        "gate": ", gate for calls out of scope" if has_gate else "",
        "answer": GATED_ANSWER if has_gate else PLAIN_ANSWER,
    }
    names = ["model", "measure"] if any(files) else ["prompt"] if "Runtime/PromptBuilder.cs" in known else ["tools"]
    if "Runtime/PromptBuilder.cs" in known:
        names.append("tests")
    if helpers := [what for what, (first, *_) in _helpers() if f"{FOLDER}/{first}" in known]:
        names.append("helpers")
        words["helpers"] = "\n".join(f"- {what}" for what in helpers)
    if "Editor/ParityHarness.cs" in known:
        names.append("probes")
    root = importlib.resources.files("converters.unity") / "pages"
    return "\n".join(Template((root / f"{name}.md").read_text(encoding="utf-8")).substitute(words) for name in names)


def _helpers() -> list[tuple[str, tuple[str, ...]]]:
    return [(f"`{', '.join(files)}`: {what}", files) for files, what in HELPERS.values()]
