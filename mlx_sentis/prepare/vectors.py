"""Texts on which tokenizers differ, with the ids and the round trip that the model's own tokenizer gives.

An engine that rebuilds a tokenizer gets these wrong first: runs of spaces where there is no pre-tokenizer, splits that
look ahead (`\\s+(?!\\S)` leaves the last space to the next word), line breaks beside spaces, contractions, runs of
digits, characters of several bytes, combining marks, special tokens inside a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TEXTS = {
    "words": "Open the north gate, please.",
    "one space before": " gate",
    "run of spaces inside": "a   b",
    "runs of spaces before and behind": "   a   ",
    "spaces alone": "    ",
    "line breaks": "a\nb\n\nc\n\n\nd\n",
    "spaces before a line break": "a  \n  b \n\n  c",
    "carriage returns": "a\r\nb\rc",
    "tabs": "\ta\t\tb\t",
    "no-break space": "a\u00a0b \u00a0c",
    "contractions": "I'm, we'll, DON'T, it's 'tis",
    "digits": "1 12 123 1234 12345.678 -9",
    "punctuation": '?!... (a){b}[c] "d" #e @f $5 50%',
    "json": '{"name": "move_to", "arguments": {"place": "the mill"}}',
    "letters of two bytes": "naïve Straße Æon",
    "combining marks": "e\u0301 n\u0303",
    "letters of three bytes": "東京 橋 한국어",
    "characters of four bytes": "👋🏽 𝄞 𐍈",
    "right to left": "שלום مرحبا",
    "zero width": "a\u200bb\ufeffc",
}


def token_vectors(tokenizer: Any) -> dict[str, dict[str, Any]]:
    """Return name to `{"text", "ids", "decoded"}`; `decoded` equals `text` where the tokenizer loses nothing.

    Args:
        tokenizer: the model's own; its first special token is put inside a text.
    """
    added = sorted(tokenizer.added_tokens_decoder.items())
    special = next((token.content for _, token in added if token.special), "")
    texts = TEXTS | ({"special token inside": f"a {special} b{special}\n{special}"} if special else {})
    ids = tokenizer(list(texts.values()), add_special_tokens=False)["input_ids"]
    return {
        name: {"text": text, "ids": found, "decoded": decoded(tokenizer, found)}
        for (name, text), found in zip(texts.items(), ids, strict=True)
    }


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of ids, special tokens as they are written and no space tidied away."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
