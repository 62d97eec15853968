"""What the prompt contract holds: whole prompts to the byte, how a call is written, what tokenizers get wrong."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import edit_json
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tool_templates import STYLES, write_tool_model

from mlx_sentis.prepare.checks import check_contract
from mlx_sentis.prepare.contract import (
    PROBE_CALL,
    Samples,
    key_order,
    kinds_of,
    make_contract,
    rows_of,
    samples_of,
)
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.tools import normalised_tools
from mlx_sentis.prepare.vectors import TEXTS, token_vectors
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError


def row_of(*said: str, call: Any = None, tools: Any = None, line: int = 1) -> Row:
    messages: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(said)
    ]
    if call:
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]})
    return Row(messages, normalised_tools(tools), f"rows.jsonl:{line}")


def rows(tools: Any) -> dict[str, Row]:
    call = {"name": "move_to", "arguments": {"place": "mill"}}
    return {
        "text": row_of("a", "one"),
        "call": row_of("go", call=call, tools=tools),
        "none": row_of("sing", "none", tools=tools),
        "multi-turn": row_of("a", "one", "b", "two"),
        "non-ascii": row_of("Brücke", "橋"),
        "plain-text": Row([{"role": "assistant", "content": "Once."}], [], "rows.jsonl:6"),
    }


def test_one_row_of_each_kind_is_picked_and_the_call_leads(tools: Any) -> None:
    every = rows(tools)
    found = samples_of([*every.values(), row_of("c", "later", line=99)])
    assert list(found) == ["call", "none", "text", "multi-turn", "non-ascii", "plain-text"]
    assert found == every
    assert kinds_of(row_of("é", "one", "b", "two")) == ["text", "multi-turn", "non-ascii"]


def test_a_row_stands_for_one_kind_and_a_stream_is_looked_at_once(tools: Any) -> None:
    picked = Samples()
    for line in range(3):
        picked.see(row_of("é", "one", "b", "two", line=line))
    assert [row.source for row in picked.rows.values()] == ["rows.jsonl:0", "rows.jsonl:1", "rows.jsonl:2"]
    assert list(picked.rows) == ["text", "multi-turn", "non-ascii"]
    with pytest.raises(StageError, match="no row to make a prompt contract of"):
        make_contract({}, None, {})


def test_each_sample_is_there_as_text_bytes_and_ids(llama: Any, tools: Any) -> None:
    contract = make_contract(samples_of(rows(tools).values()), llama.tokenizer, llama.recipe)
    assert contract["kind"] == "call"
    assert list(contract["samples"]) == ["none", "text", "multi-turn", "non-ascii", "plain-text"]
    turn = contract["samples"]["non-ascii"]
    assert turn["rendered"] == "<|im_start|>user\nBrücke<|im_end|>\n<|im_start|>assistant\n"
    assert base64.b64decode(turn["rendered_base64"]) == turn["rendered"].encode()
    assert turn["answer"] == "橋<|im_end|>\n"
    for sample in (contract, *contract["samples"].values()):
        assert llama.tokenizer.decode(sample["ids"]) == sample["rendered"]
    last = contract["samples"]["multi-turn"]["rendered"]
    assert last.endswith("one<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n")
    plain = contract["samples"]["plain-text"]
    assert (plain["rendered"], plain["ids"], plain["answer"]) == ("", [], "Once.<|im_end|>")
    assert rows_of(contract)["none"].messages == rows(tools)["none"].messages
    json.dumps(contract, allow_nan=False)


def test_the_system_block_fixes_order_spacing_and_escapes_of_a_call(llama: Any) -> None:
    contract = make_contract({"text": row_of("a", "one")}, llama.tokenizer, llama.recipe)
    written = contract["tool_serialisation"]
    assert written["probe_call"] == PROBE_CALL
    assert written["probe_answer"] == (
        r'{"name": "set_sign", "arguments": {"text": "a \"b\" \\ é 橋 {x}\n", "count": 3, "share": 0.5, "lit": true, '
        '"spot": {"row": 2, "column": 1}}}'
        "<|im_end|>\n"
    )
    assert (written["key_order"], written["separators"]) == ("schema", [", ", ": "])


@pytest.mark.parametrize(
    ("style", "order", "begins"),
    [
        ("qwen", "schema", '<tool_call>\n{"name": "set_sign", "arguments": {"text": "a'),
        ("llama", "schema", '{"name": "set_sign", "parameters": {"text": "a'),
        ("functiongemma", "sorted", "<start_function_call>call:set_sign{count:3,lit:true,share:0.5,spot:{column:1,"),
    ],
)
def test_a_templates_own_writing_of_a_call_is_recorded(tmp_path: Path, style: str, order: str, begins: str) -> None:
    assert style in STYLES
    folder = write_tool_model(tmp_path / "model", style)
    contract = make_contract({"text": row_of("a", "one")}, load_tokenizer(folder), make_recipe(folder))
    written = contract["tool_serialisation"]
    assert (written["style"], written["key_order"]) == ("template", order)
    assert written["probe_answer"].startswith(begins)


def test_the_order_of_keys_is_read_from_the_probe() -> None:
    assert key_order("text count share lit spot row column") == "schema"
    assert key_order("count lit share spot column row text") == "sorted"
    for other in ("lit count share text spot row column", "text count share", "text count share lit spot column row"):
        assert key_order(other) == "template"


def split_tokenizer(pattern: str | None) -> Tokenizer:
    """Return a byte-level tokenizer whose merges are `ĠĠ`, `ĠĠĠ` and `Ġb`, cut by a pattern first, or not at all."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, "ĠĠ", "ĠĠĠ", "Ġb"]
    merges = [("Ġ", "Ġ"), ("ĠĠ", "Ġ"), ("Ġ", "b")]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges))
    cut = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, byte_level])  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    return tokenizer


AHEAD = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PLAIN = AHEAD.replace(r"|\s+(?!\S)", "")


def pieces(pattern: str | None, text: str) -> list[str]:
    return split_tokenizer(pattern).encode(text).tokens


def test_a_split_that_looks_ahead_leaves_the_last_space_to_the_word() -> None:
    assert pieces(AHEAD, "a   b") == ["a", "ĠĠ", "Ġb"]
    assert pieces(PLAIN, "a   b") == ["a", "ĠĠĠ", "b"]
    assert pieces(None, "a   b") == ["a", "ĠĠĠ", "b"]
    assert pieces(AHEAD, "a   ") == ["a", "ĠĠĠ"]
    assert pieces(AHEAD, "a\n\n b") == ["a", "Ċ", "Ċ", "Ġb"]


def wrapped(tokenizer: Tokenizer) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_the_vectors_hold_exact_ids_and_tell_such_splits_apart() -> None:
    ahead, plain = (token_vectors(wrapped(split_tokenizer(pattern))) for pattern in (AHEAD, PLAIN))
    ids = split_tokenizer(None).get_vocab()
    assert ahead["run of spaces inside"]["ids"] == [ids["a"], ids["ĠĠ"], ids["Ġb"]]
    assert plain["run of spaces inside"]["ids"] == [ids["a"], ids["ĠĠĠ"], ids["b"]]
    assert ahead["runs of spaces before and behind"]["ids"] == [ids["ĠĠ"], ids["Ġ"], ids["a"], ids["ĠĠĠ"]]
    assert ahead["spaces alone"]["ids"] == [ids["ĠĠ"], ids["ĠĠ"]]
    different = {name for name in TEXTS if ahead[name]["ids"] != plain[name]["ids"]}
    assert {"run of spaces inside", "spaces before a line break"} <= different
    assert all(one["decoded"] == one["text"] for one in (*ahead.values(), *plain.values()))


def test_every_vector_of_a_byte_level_tokenizer_survives_the_round_trip(llama: Any) -> None:
    found = token_vectors(llama.tokenizer)
    assert {name: one["decoded"] for name, one in found.items()} == {name: one["text"] for name, one in found.items()}
    special = found["special token inside"]
    end = llama.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert special["ids"].count(end) == 3


def test_a_tokenizer_that_loses_spaces_fails_the_contract_in_its_vectors(gemma: Any, tmp_path: Path) -> None:
    contract = make_contract({"text": row_of("a", "one")}, gemma.tokenizer, gemma.recipe)
    folder = Path(shutil.copytree(gemma.folder, tmp_path / "model"))
    edit_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(pre_tokenizer=None))
    failed = {result.where: result.detail for result in check_contract(folder, contract) if not result.passed}
    assert {f"tokenizer_vectors.run of spaces inside.{what}" for what in ("ids", "decoded")} <= failed.keys()
    assert failed["tokenizer_vectors.run of spaces inside.decoded"].startswith("byte 1: found 'ab', wanted 'a   b'")
