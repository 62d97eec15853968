"""The prompt in C#: constants of the game and samples of the tests, written from the prompt contract."""

from __future__ import annotations

from converters.unity import csharp
from converters.unity.contract import Contract

DEEP = csharp.DEEP
INTEGERS, TEXTS = csharp.INTEGERS, csharp.TEXTS
STRIPS = {  # pieces.user_text: (on the left, on the right)
    "as it is": (False, False),
    "stripped": (True, True),
    "stripped on the right": (False, True),
    "stripped on the left": (True, False),
}


def prompt_sources(contract: Contract) -> dict[str, str]:
    """Return path to text of the generated sources, in the namespace `MlxSentis`."""
    return {
        "Runtime/PromptContract.cs": _constants(contract),
        "Tests/Editor/PromptSamples.cs": _samples(contract),
    }


def _constants(contract: Contract) -> str:
    left, right = STRIPS[contract.text("pieces", "user_text")]
    separators = contract.value("tool_serialisation", "separators")
    hash_of_template = contract.value("template_sha256")
    fields = [
        ("Schema of the contract.", "string", "Schema", _text(contract.text("schema"))),
        (
            r"SHA-256 of the contract's file with \n line ends.",
            "string",
            "FileSha256",
            _text(contract.sha256),
        ),
        ("SHA-256 of the chat template; null for none.", "string", "TemplateSha256", _text(hash_of_template)),
        ("What stands before the user's text.", "string", "Before", _text(contract.text("pieces", "before"))),
        ("What stands behind the user's text.", "string", "After", _text(contract.text("pieces", "after"))),
        ("Whether the template strips the text on its left.", "bool", "StripsStart", csharp.flag(left)),
        ("Whether the template strips the text on its right.", "bool", "StripsEnd", csharp.flag(right)),
        ("Ids of which each ends an answer.", INTEGERS, "StopIds", _ids(contract.ids("stop_ids"))),
        ("Id that fills a batch up.", "int", "PaddingValue", str(contract.number("padding", "value"))),
        ("Where padding goes: left or right.", "string", "PaddingSide", _text(contract.text("padding", "side"))),
        ("Id of the begin token; -1 for none.", "int", "BosId", str(contract.number("bos", "id"))),
        (
            "How often the begin token stands in a prompt, the tokenizer adding none.",
            "int",
            "BosCountInPrompt",
            str(contract.number("bos", "count_in_prompt")),
        ),
        (
            "Whether the tokenizer would add a begin token; it must be told not to.",
            "bool",
            "TokenizerAddsBos",
            csharp.flag(contract.flag("bos", "tokenizer_adds_one")),
        ),
        ("Texts that no user's text may hold.", TEXTS, "SpecialTokens", _texts(contract.texts("special_tokens"))),
        ("Who writes calls: system-block or template.", "string", "ToolStyle", _call(contract, "style")),
        ("How a call is written.", "string", "CallTemplate", _call(contract, "call_template")),
        ("Order of a call's keys: schema, sorted or template.", "string", "KeyOrder", _call(contract, "key_order")),
        (
            "What separates items, and a key from its value; empty where the template decides.",
            TEXTS,
            "Separators",
            _texts(contract.texts("tool_serialisation", "separators") if isinstance(separators, list) else []),
        ),
        ("Which characters of a call are escaped.", "string", "Escapes", _call(contract, "escapes")),
        ("The answer when no tool fits.", "string", "NoCall", _call(contract, "none")),
        ("The probe call as the model writes it.", "string", "ProbeAnswer", _call(contract, "probe_answer")),
        ("The answer of the leading sample.", "string", "SampleAnswer", _call(contract, "sample_answer")),
    ]
    what = "What the model was trained to see and to write, to the byte and to the id."
    return csharp.constants("prompt_contract.json", "PromptContract", what, fields)


def _text(value: str | None) -> str:
    found = csharp.text(value, DEEP)
    return f"\n{DEEP}{found}" if "\n" in found else found


def _ids(values: list[int]) -> str:
    return csharp.integers(values, " " * 8)


def _texts(values: list[str]) -> str:
    return csharp.texts(values, " " * 8)


def _call(contract: Contract, key: str) -> str:
    return _text(contract.text("tool_serialisation", key))


def _samples(contract: Contract) -> str:
    leading = _sample(contract, contract.text("kind"), ())
    others = [_sample(contract, kind, ("samples", kind)) for kind in contract.value("samples")]
    listed = "".join(f"\n            {one}," for one in others).removesuffix(",")
    every = f"\n        {{{listed}\n        }}" if others else " { }"
    return f"""{csharp.head("prompt_contract.json")}
namespace MlxSentis.Tests
{{
    /// <summary>A prompt that was trained.</summary>
    internal sealed class PromptSample
    {{
        private readonly bool _leads;

        public PromptSample(string kind, bool leads, string rendered, string answer, int[] ids)
        {{
            Kind = kind;
            _leads = leads;
            Rendered = rendered;
            Answer = answer;
            Ids = ids;
        }}

        public string Kind {{ get; }}

        public string Rendered {{ get; }}

        public string Answer {{ get; }}

        public int[] Ids {{ get; }}

        /// <summary>Returns the keys by which the contract holds one of the sample's fields.</summary>
        public string[] Field(string name)
        {{
            return _leads ? new[] {{ name }} : new[] {{ "samples", Kind, name }};
        }}
    }}

    /// <summary>The prompts that the contract shows.</summary>
    internal static class PromptSamples
    {{
        public static readonly PromptSample Leading =
            {leading};

        public static readonly PromptSample[] Others ={every};
    }}
}}
"""


def _sample(contract: Contract, kind: str, keys: tuple[str, ...]) -> str:
    inner = " " * 16
    answer = contract.text(*keys, "answer") if keys else contract.text("tool_serialisation", "sample_answer")
    arguments = [
        csharp.text(kind),
        csharp.flag(not keys),
        csharp.text(contract.text(*keys, "rendered"), inner),
        csharp.text(answer, inner),
        csharp.integers(contract.ids(*keys, "ids"), inner),
    ]
    return "new PromptSample(" + "".join(f"\n{inner}{one}," for one in arguments).removesuffix(",") + ")"
