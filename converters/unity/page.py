"""The kit's own page: what lies where, and the first lines of code."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable
from string import Template

from converters.unity.helpers import FOLDER, HELPERS

LOOP = """        while (decoder.Ids.Count < 64)
        {
            while (!decoder.Poll())
            {
                yield return null; // the game goes on while a token is computed
            }

            if (!decoder.Step())
            {
                break;
            }
        }
"""
PLAIN_ANSWER = f"""        decoder.BeginWithoutWaiting(tokenizer.Encode($prompt));
{LOOP}
        Debug.Log(tokenizer.Decode(decoder.Ids));"""
GATED_ANSWER = f"""        List<int> prompt = tokenizer.Encode(PromptBuilder.Build(text));
        decoder.BeginWithoutWaiting(prompt, GateRules.RefusalId);
{LOOP}
        string answer = tokenizer.Decode(decoder.Ids);
        bool isCall = CallGate.TryPass(answer, decoder.Margin, out ToolCall call);
        Debug.Log(isCall ? call.Name : "nothing to do: " + answer);"""


NO_BUILDER = """
There is no prompt builder, because nothing says which prompts are written: `text` is a whole prompt as the model's
chat template renders it, special tokens among it. `mlx-sentis prepare` and `unity RUN --base` bring a builder for the
prompts of your own rows.
"""
OF_A_RUN = "parity RUN --edge ab --sentis-dump /tmp/dump"
OF_MADE_INPUTS = "parity --model Model/model.onnx --fixture Parity~/made-prompt.npz --edge b --sentis-dump /tmp/dump"


def kit_page(namespace: str, sources: Iterable[str], files: Iterable[str], *, made: bool = False) -> str:
    """Return the page.

    Args:
        namespace: of the kit.
        sources: paths of its sources, which decide what it speaks of.
        files: paths of its large files; without a model the page is of the prompt, or of the tools, alone.
        made: whether the model has its base weights, and the harness made inputs.
    """
    known = set(sources)
    has_gate, has_prompt = "Runtime/CallGate.cs" in known, "Runtime/PromptBuilder.cs" in known
    plain = PLAIN_ANSWER.replace("$prompt", "PromptBuilder.Build(text)" if has_prompt else "text")
    words = {
        "namespace": namespace,
        "kind": "base" if made else "fine-tuned",
        "builder": "prompt builder, " if has_prompt else "",
        "tested": "prompt to the byte, ids, files" if has_prompt else "the model's file",
        "gate": ", gate for calls out of scope" if has_gate else "",
        "prompts": "" if has_prompt else NO_BUILDER,
        "answer": GATED_ANSWER if has_gate else plain,
        "measured": OF_MADE_INPUTS if made else OF_A_RUN,
    }
    names = ["model", "measure"] if any(files) else ["prompt"] if has_prompt else ["tools"]
    if has_prompt:
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
