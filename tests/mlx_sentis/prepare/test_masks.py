"""Which tokens are trained, checked against renders written out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from mask_rows import chat, command, pieces, prepare, refusal, turn

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row, ToolSet, read_row

QWEN_LIKE = (
    "{% if tools %}<|im_start|>system\nTools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}<|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA_LIKE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}<start_function_call>call:{{ call.function.name + '{' }}"
    "{% for key, value in call.function.arguments | dictsort %}{{ ',' if not loop.first }}{{ key }}:"
    "{{ '<escape>' + value + '<escape>' if value is string else value }}{% endfor %}}<end_function_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Earlier turns lose their thoughts, the last one keeps them in a fixed form.
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and '</think>' in message.content %}{% if loop.last %}<think>\n"
    "{{ message.content.split('</think>')[0].split('<think>')[-1].strip('\n') }}\n</think>\n\n{% endif %}"
    "{{ message.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ message.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_chatml_trains_the_answer_and_its_end_and_nothing_else(llama: Any) -> None:
    found = prepare(llama, chat("Open the gate", "Sure."))
    assert pieces(llama, found) == [
        ("<|im_start|>user\nOpen the gate<|im_end|>\n<|im_start|>assistant\n", False),
        ("Sure.<|im_end|>", True),
        ("\n", False),
    ]


def test_gemma_trains_what_survives_the_trim_and_begins_with_one_bos(gemma: Any) -> None:
    row = read_row(
        {"messages": [turn("system", "Be brief."), turn("user", "Open"), turn("assistant", "  yo  ")]},
        "rows.jsonl:1",
        ToolSet(),
        "system-block",
    )
    found = prepare(gemma, row)
    assert pieces(gemma, found) == [
        ("<bos><start_of_turn>user\nBe brief.\n\nOpen<end_of_turn>\n<start_of_turn>model\n", False),
        ("yo<end_of_turn>", True),
        ("\n", False),
    ]
    assert found.ids.count(gemma.recipe["bos_id"]) == 1
    assert found.edited_turns == 1


def test_every_assistant_turn_is_trained_and_no_user_turn(llama: Any) -> None:
    found = prepare(llama, chat("a", "one", "one", "two", "two", "three"))
    assert [text for text, trained in pieces(llama, found) if trained] == [
        "one<|im_end|>",
        "two<|im_end|>",
        "three<|im_end|>",
    ]


def test_the_prompt_is_an_exact_prefix_of_the_row(llama: Any, gemma: Any) -> None:
    for model in (llama, gemma):
        row = chat("a", "one", "b", "two")
        found = prepare(model, row)
        prompt = model.tokenizer.apply_chat_template(row.messages[:-1], add_generation_prompt=True, tokenize=False)
        ids = model.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        assert found.ids[: found.prompt_tokens] == ids
        assert found.trained[-1][0] == found.prompt_tokens


def test_prompt_and_completion_give_the_mask_of_the_equal_messages(llama: Any) -> None:
    pair = read_row({"prompt": "Open the gate", "completion": "Sure."}, "rows.jsonl:1", ToolSet(), "system-block")
    one, other = prepare(llama, pair), prepare(llama, chat("Open the gate", "Sure."))
    assert (one.ids, one.trained, one.prompt_tokens) == (other.ids, other.trained, other.prompt_tokens)


def test_pad_equal_to_the_end_of_turn_still_trains_the_end(llama: Any) -> None:
    stop = llama.recipe["stop_ids"][0]
    recipe = llama.recipe | {"pad_id": stop, "padding": {"value": stop, "side": "right"}}
    found = prepare(replace(llama, recipe=recipe), chat("Open", "Sure."))
    start, end = found.trained[0]
    assert found.ids[end - 1] == stop
    assert end - start > 1


def test_an_answer_that_repeats_the_question_is_found_in_its_own_place(llama: Any) -> None:
    found = prepare(llama, chat("user", "user"))
    assert [text for text, trained in pieces(llama, found) if trained] == ["user<|im_end|>"]
    assert found.trained[0][0] == found.prompt_tokens


def test_the_system_block_lists_the_tools_and_the_answer_is_one_line_of_json(llama: Any, tools: Any) -> None:
    call = {"name": "set_light", "arguments": {"lamps": 2, "state": "on"}}
    found = prepare(llama, command(call, tools, "system-block"))
    assert pieces(llama, found) == [
        (
            "<|im_start|>system\nYou are a guard.\n"
            "move_to(place: string) - walk to a place\n"
            "set_light(state: on|off, lamps: integer) - set the light\n"
            'Answer with one line of JSON, {"name": ..., "arguments": {...}}, or with none if no tool fits.<|im_end|>\n'
            "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n",
            False,
        ),
        ('{"name": "set_light", "arguments": {"state": "on", "lamps": 2}}<|im_end|>', True),
        ("\n", False),
    ]


def test_out_of_scope_is_the_word_none(llama: Any, tools: Any) -> None:
    found = prepare(llama, command(None, tools, "system-block"))
    assert pieces(llama, found)[1] == ("none<|im_end|>", True)
    assert found.row.expect() == {"kind": "none"}


def test_a_real_character_is_written_as_itself_and_reads_back(llama: Any, tools: Any) -> None:
    call = {"name": "move_to", "arguments": {"place": 'die "Brücke"\n— 橋 {'}}
    found = prepare(llama, command(call, tools, "system-block"))
    answer = pieces(llama, found)[1][0].removesuffix("<|im_end|>")
    assert answer == r'{"name": "move_to", "arguments": {"place": "die \"Brücke\"\n— 橋 {"}}'
    assert parse_answer(answer).calls[0].as_json() == call


def test_a_tool_result_is_a_user_turn_and_is_not_trained(llama: Any, tools: Any) -> None:
    call = {"function": {"name": "move_to", "arguments": {"place": "mill"}}}
    messages = [
        turn("user", "go"),
        {"role": "assistant", "tool_calls": [call]},
        turn("tool", "arrived"),
        turn("assistant", "I am there."),
    ]
    row = read_row({"messages": messages, "tools": tools}, "rows.jsonl:1", ToolSet(), "system-block")
    runs = pieces(llama, prepare(llama, row))
    assert [text for text, trained in runs if trained] == [
        '{"name": "move_to", "arguments": {"place": "mill"}}<|im_end|>',
        "I am there.<|im_end|>",
    ]
    assert runs[2][0] == "\n<|im_start|>user\nResult: arrived<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        (QWEN_LIKE, '<tool_call>\n{"name": "set_light", "arguments": {"state": "on", "lamps": 2}}\n</tool_call>'),
        (GEMMA_LIKE, "<start_function_call>call:set_light{lamps:2,state:<escape>on<escape>}<end_function_call>"),
    ],
)
def test_a_template_with_a_tools_branch_writes_and_trains_the_whole_call(
    llama: Any, tools: Any, template: str, answer: str
) -> None:
    model = llama.with_template(template)
    assert model.recipe["tools"] == "template"
    call = {"name": "set_light", "arguments": {"lamps": 2, "state": "on"}}
    for arguments in (call["arguments"], '{"lamps": 2, "state": "on"}'):  # as an object, as its JSON text
        found = prepare(model, command(call | {"arguments": arguments}, tools, "template"))
        assert pieces(model, found)[1] == (answer + "<|im_end|>", True)


def test_two_calls_in_one_turn_are_trained_and_read_back(llama: Any, tools: Any) -> None:
    calls = [{"name": "move_to", "arguments": {"place": place}} for place in ("mill", "gate")]
    messages = [turn("user", "go"), {"role": "assistant", "content": "", "tool_calls": calls}]
    row = read_row({"messages": messages, "tools": tools}, "rows.jsonl:1", ToolSet(), "system-block")
    for model in (llama, llama.with_template(QWEN_LIKE)):
        text = pieces(model, prepare(model, row))[1][0].removesuffix("<|im_end|>")
        assert [call.as_json() for call in parse_answer(text, model.recipe["tools"]).calls] == calls
    assert row.expect() is None


def test_a_call_the_template_misspells_is_refused_before_training(llama: Any, tools: Any) -> None:
    model = llama.with_template(QWEN_LIKE.replace("call.function.arguments | tojson", "{'schema': {}} | tojson"))
    reason = refusal(model, command({"name": "move_to", "arguments": {"place": "mill"}}, tools, "template"))
    assert reason.startswith("rows.jsonl:7: the rendered call does not read back: ")


def test_thoughts_that_inference_never_sees_are_not_trained(llama: Any) -> None:
    model = llama.with_template(THINKING)
    thought = "<think>\nhm\n</think>\n\n"
    found = prepare(model, chat("a", thought + "one", "b", thought + "two"))
    assert [text for text, trained in pieces(model, found) if trained] == ["one<|im_end|>", thought + "two<|im_end|>"]
    assert found.edited_turns == 1


def test_a_template_that_rewrites_the_answer_is_refused_by_name(llama: Any) -> None:
    model = llama.with_template(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{{ message.content | upper if message.content | length > 6 else message.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    assert refusal(model, chat("Open", "Sure.")).startswith("rows.jsonl:7: sentinels change the render")


def test_a_row_that_does_not_begin_with_its_prompt_is_refused(llama: Any) -> None:
    template = llama.tokenizer.chat_template.replace("<|im_start|>assistant\n", "<|im_start|>assistant \n")
    assert "the row does not begin with the prompt that inference would build" in refusal(
        llama.with_template(template), chat("Open", "Sure.")
    )


def test_a_token_across_the_edge_of_prompt_and_answer_is_refused(llama: Any) -> None:
    template = (
        "{% for message in messages %}{{ '<|im_start|>' if message.role == 'user' else ' ' }}{{ message.content }}"
        "{{ '<|im_end|>' if message.role == 'assistant' }}{% endfor %}{% if add_generation_prompt %} {% endif %}"
    )
    model = llama.with_template(template)
    assert len(model.tokenizer(" the")["input_ids"]) == 1
    assert "straddles the edge of prompt and answer" in refusal(model, chat("open", "the gate"))


def test_a_missing_end_of_turn_is_refused(llama: Any) -> None:
    template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
        "{{ '<|im_end|>' if message.role == 'user' else '' }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    model = llama.with_template(template)
    for row in (chat("a", "one"), chat("a", "one", "b", "two")):  # the user's own end token is not the answer's
        assert "no end-of-turn token behind the answer" in refusal(model, row)


def test_a_doubled_bos_is_refused(gemma: Any) -> None:
    template = gemma.tokenizer.chat_template.replace("{{ bos_token }}", "{{ bos_token }}{{ bos_token }}")
    assert "begins with the beginning-of-sequence token (3) twice" in refusal(
        gemma.with_template(template), chat("Open", "Sure.")
    )


@pytest.mark.parametrize("contents", [("hi <|im_end|>", "Sure."), ("hi", "Sure.<|im_end|> more")])
def test_a_special_token_inside_a_text_is_refused(llama: Any, contents: tuple[str, str]) -> None:
    assert "special token '<|im_end|>'" in refusal(llama, chat(*contents))


def test_a_sentinel_inside_a_text_is_refused(llama: Any) -> None:
    assert "private-use character U+F5A0" in refusal(llama, chat("hi \uf5a0", "Sure."))


def test_a_bad_row_leaves_the_rows_around_it_alone(llama: Any) -> None:
    rows = [chat("a", "one"), chat("<bos>", "x"), chat("b", "two", "c", "three"), chat("d", "four")]
    found = list(prepared_rows(rows, llama.tokenizer, llama.recipe))
    assert [isinstance(row, str) for row in found] == [False, True, False, False]
    assert found[0] == prepare(llama, rows[0])
    assert found[2] == prepare(llama, rows[2])
    assert found[3] == prepare(llama, rows[3])


def test_characters_of_several_tokens_are_trained_whole(llama: Any) -> None:
    found = prepare(llama, chat("wave", "👋🏽 橋"))
    assert pieces(llama, found)[1] == ("👋🏽 橋<|im_end|>", True)


def test_only_the_last_turn_is_trained_when_asked(llama: Any) -> None:
    row = chat("a", "one", "b", "two", "c", "three")
    every = prepare(llama, row)
    found = next(prepared_rows([row], llama.tokenizer, llama.recipe, train_turns="last"))
    assert isinstance(found, Prepared)
    assert found.ids == every.ids
    assert found.trained == every.trained[-1:]
    assert pieces(llama, found)[1] == ("three<|im_end|>", True)


def test_an_earlier_turn_of_which_nothing_survives_is_refused_and_harmless_when_not_trained(llama: Any) -> None:
    model = llama.with_template(THINKING)
    row = chat("a", "<think>\nhm\n</think>\n\n", "b", "two")
    assert refusal(model, row) == "rows.jsonl:7: messages[1]: nothing but the end of turn would be trained"
    found = next(prepared_rows([row], model.tokenizer, model.recipe, train_turns="last"))
    assert isinstance(found, Prepared)
    assert pieces(model, found)[1] == ("two<|im_end|>", True)


def test_a_special_token_inside_a_tool_is_refused(llama: Any) -> None:
    tools = [{"name": "go", "description": "ends <|im_end|> here"}]
    assert refusal(llama, command(None, tools, "system-block")) == (
        "rows.jsonl:7: tools: the text has the special token '<|im_end|>', which would end a turn"
    )


def test_rows_may_come_as_a_stream(llama: Any) -> None:
    read: list[int] = []

    def stream() -> Iterator[Row]:
        for number in range(2000):
            read.append(number)
            yield chat(f"a {number}", "one")

    first = next(prepared_rows(stream(), llama.tokenizer, llama.recipe))
    assert isinstance(first, Prepared)
    assert len(read) < 1000


def test_a_row_that_the_template_refuses_leaves_its_batch_alone(llama: Any, tools: Any) -> None:
    rule = "{% if messages[0].content == 'bad' %}{{ raise_exception('no such thing') }}{% endif %}"
    model = llama.with_template(rule + llama.tokenizer.chat_template)
    rows = [chat("a", "one"), chat("bad", "x"), chat("b", "two", tools=tools), chat("c", "three", "d", "four")]
    found = list(prepared_rows(rows, model.tokenizer, model.recipe))
    assert found[1] == "rows.jsonl:7: the chat template refuses the roles (user, assistant): no such thing"
    assert [found[index] for index in (0, 2, 3)] == [prepare(model, rows[index]) for index in (0, 2, 3)]
