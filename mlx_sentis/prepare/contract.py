"""The prompt contract: what the model sees, to the byte, for everyone who builds a prompt later.

It is written with the data and checked before the first update, on the trained checkpoint, at export, and in the game.
It holds whole prompts (bytes, ids), the pieces around a user's text, what ends an answer and what pads one, how a call
is written, and what the tokenizer makes of texts on which tokenizers differ.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlx_sentis.prepare.conversation import conversation_of, plain_frame, rendered
from mlx_sentis.prepare.masks import special_texts
from mlx_sentis.prepare.pieces import prompt_pieces
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.tools import NONE, SEPARATORS, SYSTEM_BLOCK
from mlx_sentis.prepare.vectors import token_vectors
from mlx_sentis.templates import adds_bos
from weights_bridge.errors import StageError
from weights_bridge.files import sha256_of_text

SCHEMA = "mlx-sentis/prompt_contract/4"
GIVEN = ("kind", "messages", "tools")  # of a sample: chosen from the data, the rest follows
KINDS = (
    "call",
    "none",
    "text",
    "multi-turn",
    "non-ascii",
    "plain-text",
)  # the first of them that the data has leads the contract
ESCAPES = 'only ", \\ and control characters are escaped; every other character is written as itself'
# A call in whose text key order, spacing and escapes all show: its schema's order is not the alphabet's.
PROBE_ARGUMENTS = {
    "text": 'a "b" \\ é 橋 {x}\n',
    "count": 3,
    "share": 0.5,
    "lit": True,
    "spot": {"row": 2, "column": 1},
}
PROBE_TYPES = {"text": "string", "count": "integer", "share": "number", "lit": "boolean", "spot": "object"}
SPOT_SCHEMA = {"type": "object", "properties": {"row": {"type": "integer"}, "column": {"type": "integer"}}}
IN_SCHEMA_ORDER = (*PROBE_TYPES, *PROBE_ARGUMENTS["spot"])
IN_SORTED_ORDER = ("count", "lit", "share", "spot", "column", "row", "text")
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "set_sign",
        "description": "Write on a sign.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in PROBE_TYPES.items()} | {"spot": SPOT_SCHEMA},
            "required": list(PROBE_TYPES),
        },
    },
}
PROBE_CALL = {"name": "set_sign", "arguments": PROBE_ARGUMENTS}


class Samples:
    """Picks a contract's samples from a stream of rows: the first of each kind, a row for one kind only."""

    def __init__(self) -> None:
        self.found: dict[str, Row] = {}

    def see(self, row: Row) -> None:
        """Look at one row."""
        if len(self.found) < len(KINDS):
            free = next((kind for kind in kinds_of(row) if kind not in self.found), None)
            if free is not None:
                self.found[free] = row

    @property
    def rows(self) -> dict[str, Row]:
        """Kind to row, in the order of `KINDS`."""
        return {kind: self.found[kind] for kind in KINDS if kind in self.found}


def samples_of(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the samples that a contract shows of some rows."""
    picked = Samples()
    for row in rows:
        picked.see(row)
    return picked.rows


def kinds_of(row: Row) -> list[str]:
    """Return what a row can be a sample of."""
    if row.is_plain_text:
        return ["plain-text"]
    kinds = ["call" if row.calls else "none" if row.kind == NONE else "text"]
    if sum(message["role"] == "assistant" for message in row.messages) > 1:
        kinds.append("multi-turn")
    if not all(message["content"].isascii() for message in row.messages):
        kinds.append("non-ascii")
    return kinds


def make_contract(
    samples: Mapping[str, Row], tokenizer: Any, recipe: dict[str, Any], *, train_turns: str = "all"
) -> dict[str, Any]:
    """Return the prompt contract.

    Args:
        samples: kind to row, from `samples_of` or `Samples`; the first one leads.
        tokenizer: from `load_tokenizer`.
        recipe: the model's recipe.
        train_turns: which of the assistant's turns the rows train, `all` or `last`.

    Raises:
        StageError: there is no sample, or the template refuses one.
    """
    if not samples:
        raise StageError("no row to make a prompt contract of", hint="prepare some rows")
    style = recipe["tools"]
    (kind, row), *others = samples.items()
    first: dict[str, Any] = {"kind": kind} | _sample(row, tokenizer, style, recipe["stop_ids"])
    answer, ids = first.pop("answer"), first["ids"]
    bos = recipe.get("bos_id")
    return {
        "schema": SCHEMA,
        **_template_hashes(tokenizer),
        **first,
        "stop_ids": list(recipe["stop_ids"]),
        "padding": {"value": recipe["padding"]["value"], "side": recipe["padding"]["side"]},
        "bos": {"id": bos, "count_in_prompt": ids.count(bos), "tokenizer_adds_one": adds_bos(tokenizer)},
        "special_tokens": special_texts(tokenizer),
        "pieces": prompt_pieces(row, tokenizer, recipe),
        "train_turns": train_turns,
        "tool_serialisation": {**_serialisation(tokenizer, style), "sample_answer": answer},
        "samples": {kind: _sample(row, tokenizer, style, recipe["stop_ids"]) for kind, row in others},
        "tokenizer_vectors": token_vectors(tokenizer),
    }


def _sample(row: Row, tokenizer: Any, style: str, stop_ids: Sequence[int]) -> dict[str, Any]:
    """Return a row's last prompt as text, bytes and ids, and the answer with what the template writes behind it."""
    if row.is_plain_text:
        prompt, end = plain_frame(tokenizer, stop_ids)
        text = prompt + row.messages[0]["content"] + end
    else:
        whole = conversation_of(row.messages, row.tools, style)
        prompt = rendered(tokenizer, whole.before(len(whole.messages) - 1), prompt=True)
        text = rendered(tokenizer, whole)
    return {
        "messages": row.messages,
        "tools": row.tools,
        "rendered": prompt,
        "rendered_base64": base64.b64encode(prompt.encode()).decode("ascii"),
        "rendered_sha256": sha256_of_text(prompt),
        "ids": list(tokenizer(prompt, add_special_tokens=False)["input_ids"]),
        "answer": text[len(prompt) :],
    }


def _template_hashes(tokenizer: Any) -> dict[str, Any]:
    """Return the hash of the template, and of the others that some models bring by name; None without a template."""
    forms = tokenizer.chat_template
    if not forms:
        return {"template_sha256": None}
    named = forms if isinstance(forms, dict) else {"default": forms}
    others = {name: sha256_of_text(text) for name, text in sorted(named.items()) if name != "default"}
    return {"template_sha256": sha256_of_text(named["default"])} | ({"other_templates": others} if others else {})


def _serialisation(tokenizer: Any, style: str) -> dict[str, Any]:
    """Return how a call is written: by our convention, or by a template that has a branch for tools."""
    answer = _probe_answer(tokenizer, style)
    ours = style == SYSTEM_BLOCK
    return {
        "style": style,
        "call_template": '{"name": NAME, "arguments": {KEY: VALUE, ...}}' if ours else "template",
        "key_order": key_order(answer),
        "separators": list(SEPARATORS) if ours else "template",
        "escapes": ESCAPES if ours else "template",
        "none": NONE,
        "probe_call": PROBE_CALL,
        "probe_answer": answer,
    }


def _probe_answer(tokenizer: Any, style: str) -> str:
    """Return how the probe call is written, the empty text where the template refuses it."""
    calls = [{"type": "function", "function": PROBE_CALL}]
    messages = [{"role": "user", "content": "Write it."}, {"role": "assistant", "content": "", "tool_calls": calls}]
    try:
        return _sample(Row(messages, [PROBE_TOOL], "probe"), tokenizer, style, ())["answer"]
    except StageError:
        return ""


def key_order(answer: str) -> str:
    """Return `schema`, `sorted` or `template`: in which order the probe's keys stand in a text, at both depths."""
    places = {name: answer.find(name) for name in IN_SCHEMA_ORDER}
    found = tuple(sorted(places, key=lambda name: places[name]))
    if min(places.values()) < 0:
        return "template"
    return {IN_SCHEMA_ORDER: "schema", IN_SORTED_ORDER: "sorted"}.get(found, "template")


def rows_of(contract: Mapping[str, Any]) -> dict[str, Row]:
    """Return a contract's samples as rows, the leading one first."""
    samples = {contract["kind"]: contract, **contract["samples"]}
    return {kind: Row(one["messages"], one["tools"], f"prompt_contract.json, {kind}") for kind, one in samples.items()}
