"""Rows over the window: every count by hand, in ChatML of the toy tokenizer, where each `x` is one token.

A user turn is `<|im_start|>` `use` `r` `\n`, its text, `<|im_end|>` `\n`: 6 tokens and its text. An assistant turn is
`<|im_start|>` `a` `ss` `istant` `\n`, its text, `<|im_end|>` `\n`: 7 tokens and its text; text + 1 are trained.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from mlx_sentis.prepare.masks import Prepared, RowMaker, TooLong, prepared_rows
from mlx_sentis.prepare.row_tokens import RowTokens
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.too_long import Dropped, characters_per_token
from mlx_sentis.prepare.tools import normalised_tools


def row_of(*lengths: int, system: str = "", tools: Any = None) -> Row:
    """Return a row of user and assistant texts in turn, so many `x` each."""
    messages = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": ("user", "assistant")[index % 2], "content": "x" * length} for index, length in enumerate(lengths)
    ]
    return Row(messages, normalised_tools(tools), "rows.jsonl:7")


def shaped(model: Any, row: Row, max_tokens: int, too_long: TooLong = "left") -> Prepared | Dropped | str:
    found = list(prepared_rows([row], model.tokenizer, model.recipe, max_tokens=max_tokens, too_long=too_long))
    assert len(found) == 1
    return found[0]


def lengths_of(found: Prepared) -> list[int]:
    return [len(message["content"]) for message in found.row.messages]


# 40 tokens of prompt (6 + 29 + 5), 5 trained (4 + 1), the line break behind them: 46.
LONG = (29, 4)


def test_a_row_that_fits_to_the_token_is_left_as_it_is(llama: Any) -> None:
    for too_long in ("refuse", "drop", "left"):
        found = shaped(llama, row_of(*LONG), 46, too_long)
        assert isinstance(found, Prepared)
        assert (len(found.ids), found.prompt_tokens, found.trained, found.cut_tokens) == (46, 40, [(40, 45)], 0)
        assert "cut_tokens" not in found.as_json("train-0001")


def test_too_long_is_refused_by_default_and_dropped_when_asked(llama: Any) -> None:
    assert shaped(llama, row_of(*LONG), 32, "refuse") == (
        "rows.jsonl:7: 46 tokens, wanted at most 32 (data.max_tokens)"
    )
    dropped = shaped(llama, row_of(*LONG), 32, "drop")
    assert isinstance(dropped, Dropped)
    assert str(dropped) == "rows.jsonl:7: 46 tokens, more than 32 (data.max_tokens)"


def test_the_prompt_is_cut_on_its_left_by_exactly_what_is_too_much(llama: Any) -> None:
    found = shaped(llama, row_of(*LONG), 32)
    assert isinstance(found, Prepared)
    assert (len(found.ids), found.prompt_tokens, found.trained, found.cut_tokens) == (32, 26, [(26, 31)], 14)
    assert lengths_of(found) == [15, 4]
    assert found.text.startswith("<|im_start|>user\nxxx")
    assert found.as_json("train-0001")["cut_tokens"] == 14


def test_the_left_of_the_text_goes_and_its_right_stays(llama: Any) -> None:
    row = Row(
        [{"role": "user", "content": "0123456789" * 3}, {"role": "assistant", "content": "xxxx"}], [], "rows.jsonl:7"
    )
    found = shaped(llama, row, 32)
    assert isinstance(found, Prepared)
    assert found.row.messages[0]["content"] == "567890123456789"
    assert len(found.ids) == 32


def test_an_answer_that_does_not_fit_by_itself_is_dropped_with_its_reason(llama: Any) -> None:
    for answer in (40, 200):
        dropped = shaped(llama, row_of(29, answer), 32)
        assert isinstance(dropped, Dropped)
        assert dropped.source == "rows.jsonl:7"
        assert dropped.reason.endswith("without what may be cut (user texts, older turns) it is still too long")


@pytest.mark.parametrize(
    ("max_tokens", "lengths", "tokens", "trained"),
    [
        (64, [20, 4, 10, 4], 64, 10),  # 26 + 11 + 16 + 11
        (50, [6, 4, 10, 4], 50, 10),  # 14 of the first user's text
        (45, [1, 4, 10, 4], 45, 10),
        (44, [10, 4], 27, 5),  # nothing would be left of it: the first exchange goes
        (27, [10, 4], 27, 5),
        (20, [3, 4], 20, 5),
        (18, [1, 4], 18, 5),
    ],
)
def test_older_turns_go_before_the_last_question_is_touched(
    llama: Any, max_tokens: int, lengths: list[int], tokens: int, trained: int
) -> None:
    found = shaped(llama, row_of(20, 4, 10, 4), max_tokens)
    assert isinstance(found, Prepared)
    assert lengths_of(found) == lengths
    assert (len(found.ids), found.trained_tokens, found.cut_tokens) == (tokens, trained, 64 - tokens)
    assert isinstance(shaped(llama, row_of(20, 4, 10, 4), 17), Dropped)


def test_system_block_and_tools_are_never_cut(llama: Any, tools: Any) -> None:
    row = row_of(80, 4, system="You are a guard.", tools=tools)
    whole = shaped(llama, row, 4096)
    assert isinstance(whole, Prepared)
    found = shaped(llama, row, len(whole.ids) - 60)
    assert isinstance(found, Prepared)
    block = whole.text.partition("<|im_end|>")[0]
    assert "move_to(place: string)" in block
    assert found.text.startswith(block + "<|im_end|>\n<|im_start|>user\n" + "x" * 20 + "<|im_end|>")
    assert found.cut_tokens == 60


def test_the_begin_token_is_kept(gemma: Any) -> None:
    whole = shaped(gemma, row_of(40, 4), 4096)
    assert isinstance(whole, Prepared)
    found = shaped(gemma, row_of(40, 4), len(whole.ids) - 10)
    assert isinstance(found, Prepared)
    assert (found.ids[0], found.ids.count(gemma.recipe["bos_id"])) == (gemma.recipe["bos_id"], 1)
    assert found.cut_tokens == 10


def test_a_cut_row_is_the_row_of_its_shortened_messages(llama: Any) -> None:
    found = shaped(llama, row_of(20, 4, 10, 4), 40)
    assert isinstance(found, Prepared)
    again = shaped(llama, found.row, 40)
    assert isinstance(again, Prepared)
    assert (again.text, again.ids, again.trained) == (found.text, found.ids, found.trained)


def test_rows_around_a_dropped_one_stay_in_order(llama: Any) -> None:
    rows = [row_of(2, 2), row_of(2, 90), row_of(60, 2), row_of(3, 3)]
    found = list(prepared_rows(iter(rows), llama.tokenizer, llama.recipe, max_tokens=32, too_long="left"))
    assert [type(one) for one in found] == [Prepared, Dropped, Prepared, Prepared]
    assert [len(one.ids) for one in found if isinstance(one, Prepared)] == [17, 32, 19]


def test_a_plain_text_has_no_prompt_to_cut(llama: Any) -> None:
    text = Row([{"role": "assistant", "content": "x" * 50}], [], "rows.jsonl:7")
    dropped = shaped(llama, text, 32)
    assert isinstance(dropped, Dropped)
    assert "a plain text has no prompt" in dropped.reason


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters each tokenised row had."""
    found: list[int] = []
    plain = RowTokens.tokenised

    def counting(self: RowTokens, texts: list[str], *, offsets: bool = False) -> Any:
        found.extend(map(len, texts))
        return plain(self, texts, offsets=offsets)

    monkeypatch.setattr(RowTokens, "tokenised", counting)
    return found


def test_a_row_of_megabytes_is_told_without_tokenising_it(llama: Any, tokenised: list[int]) -> None:
    text = "mill " * 20_000
    row = Row([{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}], [], "a.jsonl:1")
    short = Row([{"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}], [], "a.jsonl:2")
    maker = RowMaker(llama.tokenizer, llama.recipe, max_tokens=100)
    refused, kept = maker.prepared([row, short])
    assert isinstance(refused, str) and isinstance(kept, Prepared)
    least = int(re.search(r"a.jsonl:1: at least (\d+) tokens, wanted at most 100", refused)[1])  # pyright: ignore
    assert 100 < least <= len(llama.tokenizer(text)["input_ids"])
    assert max(tokenised) < 1000
    dropped, _ = RowMaker(llama.tokenizer, llama.recipe, max_tokens=100, too_long="drop").prepared([row, short])
    assert isinstance(dropped, Dropped)
    assert dropped.reason == f"at least {least} tokens, more than 100 (data.max_tokens)"


def as_whole(model: Any, row: Row, max_tokens: int) -> Any:
    """Cut a row with all of it tokenised, however long it is."""
    maker = RowMaker(model.tokenizer, model.recipe, max_tokens=max_tokens, too_long="left")
    maker.per_token = None
    return next(maker.prepared([row]))


@pytest.mark.parametrize("older", [0, 1, 3000])
def test_a_long_row_is_cut_as_if_it_had_been_tokenised_whole_and_only_its_end_is(
    llama: Any, tokenised: list[int], older: int
) -> None:
    text = " ".join(f"mill number {n}" for n in range(4000))
    turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "There."}] * older
    last = [{"role": "user", "content": text}, {"role": "assistant", "content": "By the river."}]
    row = Row([{"role": "system", "content": "You guard."}, *turns, *last], [], "a.jsonl:1")
    found = shaped(llama, row, 100)
    assert isinstance(found, Prepared)
    bound = characters_per_token(llama.tokenizer) or 0
    assert max(tokenised) < 3 * 100 * bound < len(text)
    tokenised.clear()
    whole = as_whole(llama, Row([row.messages[0], *last], [], "a.jsonl:1"), 100)
    assert max(tokenised) > len(text)
    assert (found.text, found.ids, found.trained) == (whole.text, whole.ids, whole.trained)
    assert len(found.ids) == 100
    assert 0 < found.cut_tokens <= whole.cut_tokens + 20 * older


def test_a_conversation_of_thousands_of_turns_is_not_rendered_thousands_of_times(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "There."}] * 4000
    batches: list[int] = []
    plain = RowMaker._batch

    def counting(self: RowMaker, rows: Any, *, is_bounded: bool = False) -> Any:
        batches.extend(len(row.messages) for row in rows)
        return plain(self, rows, is_bounded=is_bounded)

    monkeypatch.setattr(RowMaker, "_batch", counting)
    found = shaped(llama, Row(turns, [], "a.jsonl:1"), 100)
    assert isinstance(found, Prepared)
    assert 60 < len(found.ids) <= 100
    assert batches[0] == 8000 and max(batches[1:]) < 2000 and len(batches) < 20


@pytest.mark.parametrize("place", ["answer", "system"])
def test_a_long_text_that_may_not_be_cut_is_dropped_without_tokenising_it(
    llama: Any, tokenised: list[int], place: str
) -> None:
    long = "mill " * 20_000
    messages = [
        {"role": "system", "content": long if place == "system" else "You guard."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": long if place == "answer" else "There."},
    ]
    dropped = shaped(llama, Row(messages, [], "a.jsonl:1"), 100)
    assert isinstance(dropped, Dropped)
    assert re.fullmatch(r"at least \d+ tokens, more than 100 .*older turns\) it is still too long", dropped.reason)
    text = shaped(llama, Row([{"role": "assistant", "content": long}], [], "a.jsonl:1"), 100)
    assert isinstance(text, Dropped)
    assert text.reason.endswith("a plain text has no prompt that could be cut")
    assert max(tokenised, default=0) < 1000


def test_a_model_that_fuses_unknown_text_has_no_bound(llama: Any) -> None:
    assert characters_per_token(llama.tokenizer) is not None
    fusing = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))
    assert characters_per_token(fusing) is None
