"""Spans over templates of every kind: what is trained is what survives of the answer, and its end of turn."""

from __future__ import annotations

from typing import Any

import pytest
from chat_templates import BRACKETS, DEFAULT_SYSTEM, MARKED_RIGHT, THINKING, TRIMMED
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlx_sentis.demo.toy import CHATML, GEMMA
from mlx_sentis.prepare.masks import Prepared, RowMaker, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.templates import render
from weights_bridge.errors import StageError

TEMPLATES = {
    "chatml": CHATML,
    "default system": DEFAULT_SYSTEM,
    "trimmed": TRIMMED,
    "gemma": GEMMA,
    "brackets": BRACKETS,
    "thinking": THINKING,
    "marked": MARKED_RIGHT,
}
STRIPPING = ("trimmed", "gemma", "brackets")  # they end a turn with <end_of_turn>, the others with <|im_end|>
# No special token can come of these, nor a thought by chance.
LETTERS = st.characters(exclude_categories=["Cs", "Co"], exclude_characters="<>")
WORDS = st.text(LETTERS, max_size=20) | st.sampled_from(
    ["  yo  ", "two\n\nlines\n", "user", "橋 👋🏽", "e\u0301", "\u00a0x"]
)
SAID = WORDS.filter(lambda text: text.strip())


@pytest.fixture(scope="session")
def models(llama: Any) -> dict[str, Any]:
    return {name: llama.with_template(template) for name, template in TEMPLATES.items()}


def conversation(system: str, said: list[tuple[str, str]]) -> Row:
    messages = [{"role": "system", "content": system}] if system else []
    for question, answer in said:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Row(messages, [], "rows.jsonl:1")


def thought_and_answer(content: str) -> tuple[str, str]:
    if "</think>" not in content:
        return "", content.lstrip("\n")
    before, _, answer = content.rpartition("</think>")
    return before.partition("</think>")[0].rpartition("<think>")[2].strip("\n"), answer.lstrip("\n")


def surviving(name: str, content: str, is_last: bool) -> str:
    """Return what a model of that template must write, by the template's own words."""
    if name in STRIPPING:
        return content.strip()
    if name == "thinking":
        thought, answer = thought_and_answer(content)
        return f"<think>\n{thought}\n</think>\n\n{answer}" if is_last else answer
    return content


def trained_texts(model: Any, found: Prepared) -> list[str]:
    return [model.tokenizer.decode(found.ids[start:stop]) for start, stop in found.trained]


THOUGHTS = st.tuples(SAID, SAID).map(lambda pair: f"<think>\n{pair[0]}\n</think>\n\n{pair[1]}")


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=60)
@given(
    system=st.sampled_from(["", "Be brief.", " Be\nbrief. "]),
    said=st.lists(st.tuples(SAID, SAID | THOUGHTS), min_size=1, max_size=3),
)
def test_each_trained_turn_is_what_survives_and_its_end(
    models: dict[str, Any], name: str, system: str, said: list[tuple[str, str]]
) -> None:
    model = models[name]
    found = next(prepared_rows([conversation(system, said)], model.tokenizer, model.recipe))
    if isinstance(found, str):  # a text that begins in spaces can grow together with the header before it
        assert "straddles the edge" in found or "would be trained" in found or "sentinels change the render" in found
        assume(False)
    assert isinstance(found, Prepared)
    end = "<end_of_turn>" if name in STRIPPING else "<|im_end|>"
    answers = [surviving(name, answer, index == len(said) - 1) for index, (_, answer) in enumerate(said)]
    assert trained_texts(model, found) == [answer + end for answer in answers]
    assert found.disagreements == ()


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=30)
@given(said=st.lists(st.tuples(SAID, SAID | THOUGHTS), min_size=1, max_size=3))
def test_trained_are_exactly_the_tokens_between_a_prompt_by_itself_and_the_end_of_its_answer(
    models: dict[str, Any], name: str, said: list[tuple[str, str]]
) -> None:
    model, row = models[name], conversation("", said)
    found = next(prepared_rows([row], model.tokenizer, model.recipe))
    assume(isinstance(found, Prepared))
    assert isinstance(found, Prepared)
    end, count = ("<end_of_turn>" if name in STRIPPING else "<|im_end|>"), 0
    places = [index for index, message in enumerate(row.messages) if message["role"] == "assistant"]
    for place, (start, stop) in zip(places, found.trained, strict=True):
        prompt = render(model.tokenizer, row.messages[:place], add_generation_prompt=True)
        whole = prompt + surviving(name, row.messages[place]["content"], place == places[-1]) + end
        before, upto = model.tokenizer([prompt, whole], add_special_tokens=False)["input_ids"]
        assert (found.ids[:start], found.ids[:stop]) == (before, upto)
        count += len(upto) - len(before)
    assert found.trained_tokens == count


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=30)
@given(said=st.lists(st.tuples(SAID, SAID | THOUGHTS), min_size=1, max_size=3))
def test_equality_proves_what_sentinels_show(models: dict[str, Any], name: str, said: list[tuple[str, str]]) -> None:
    model, row = models[name], conversation("", said)
    quick, slow = (RowMaker(model.tokenizer, model.recipe) for _ in range(2))
    slow.spans.frames = [None, None]
    one, other = next(quick.prepared([row])), next(slow.prepared([row]))
    assert one == other or (isinstance(one, Prepared) and isinstance(other, str))


def test_most_rows_are_rendered_twice_and_not_again(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_sentis.prepare import spans

    maker = RowMaker(llama.tokenizer, llama.recipe)
    monkeypatch.setattr(spans, "rendered", lambda *_, **__: pytest.fail("a row was wrapped"))
    rows = [conversation("Be brief.", [("a", "one"), ("b", "two")]), conversation("", [("橋", " x ")])]
    assert all(isinstance(found, Prepared) for found in maker.prepared(rows))


def test_a_template_that_repeats_the_answer_is_refused(llama: Any) -> None:
    twice = CHATML.replace("message['content'] +", "message['content'] + message['content'] +")
    model = llama.with_template(twice)
    found = next(prepared_rows([conversation("", [("a", "one")])], model.tokenizer, model.recipe))
    assert isinstance(found, str)
    assert "sentinels change the render" in found


def test_thoughts_that_the_template_wraps_again_are_refused(llama: Any) -> None:
    opening = "message['role'] + '\n' +"
    assert opening in CHATML
    again = CHATML.replace(
        opening, opening + " ('<think>\\n\\n</think>\\n\\n' if message.role == 'assistant' else '') +"
    )
    model = llama.with_template(again)
    good, bad = (conversation("", [("a", text)]) for text in ("one", "<think>\nhm\n</think>\n\none"))
    found = list(prepared_rows([good, bad], model.tokenizer, model.recipe))
    assert trained_texts(model, found[0]) == ["<think>\n\n</think>\n\none<|im_end|>"]
    assert found[1] == "rows.jsonl:1: messages[1]: the template wraps the turn's thoughts in <think> a second time"


def test_a_prompt_that_opens_the_thought_leaves_the_rest_to_train(llama: Any) -> None:
    opened = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    model = llama.with_template(opened)
    rows = [conversation("", [("a", text)]) for text in ("<think>\nhm\n</think>\n\none", "one")]
    found = list(prepared_rows(rows, model.tokenizer, model.recipe))
    assert trained_texts(model, found[0]) == ["hm\n</think>\n\none<|im_end|>"]
    assert "the row does not begin with the prompt that inference would build" in str(found[1])


def test_an_edit_that_sentinels_survive_is_trained_as_rendered_and_one_they_change_is_refused(llama: Any) -> None:
    row = conversation("", [("a", "go on")])
    upper, title = (
        llama.with_template(CHATML.replace("message['content'] +", f"message['content'] | {edit} +"))
        for edit in ("upper", "title")
    )
    found = next(prepared_rows([row], upper.tokenizer, upper.recipe))
    assert isinstance(found, Prepared)
    assert trained_texts(upper, found) == ["GO ON<|im_end|>"]
    assert found.edited_turns == 1
    refused = next(prepared_rows([row], title.tokenizer, title.recipe))
    assert str(refused).startswith("rows.jsonl:1: sentinels change the render")


SILENT = CHATML.partition("{% if add_generation_prompt %}")[0]


def test_a_header_that_no_prompt_ends_in_is_refused_and_never_trained(llama: Any) -> None:
    assert SILENT != CHATML
    model = llama.with_template(SILENT)
    with pytest.raises(
        StageError, match=r"opens every answer with '<\|im_start\|>assistant\\n', which no prompt"
    ) as caught:
        list(prepared_rows([conversation("", [("a", "b")])], model.tokenizer, model.recipe))
    assert "--template FILE" in caught.value.hint


def test_a_template_without_headers_needs_no_generation_prompt(llama: Any) -> None:
    model = llama.with_template(BRACKETS)
    (row,) = prepared_rows([conversation("", [("a", "b")])], model.tokenizer, model.recipe)
    assert isinstance(row, Prepared)
    ((start, stop),) = row.trained
    assert model.tokenizer.decode(row.ids[start:stop]) == "b<end_of_turn>"
