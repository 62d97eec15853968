"""A prompt in pieces: they rebuild what the template writes to the byte, or are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from chat_templates import BRACKETS, DEFAULT_SYSTEM, HEADER, THINKING, TRIMMED, TURN

from mlx_sentis.prepare.contract import make_contract
from mlx_sentis.prepare.conversation import conversation_of, rendered
from mlx_sentis.prepare.pieces import PROBES, USER_TEXT, prompt_pieces
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.tools import normalised_tools

SYSTEM = {"role": "system", "content": "You guard the gate."}
SAID = "  Öffne das Tor 👋🏽!\n"


def row(*, system: bool = False, tools: Any = None) -> Row:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return Row([SYSTEM, *messages] if system else messages, normalised_tools(tools), "rows.jsonl:1")


def edited(what: str) -> str:
    return "{% for message in messages %}" + TURN.replace("message.content", what) + "{% endfor %}" + HEADER


TEMPLATES = {
    "as it is": (DEFAULT_SYSTEM, "as it is"),
    "thoughts": (THINKING, "as it is"),
    "trimmed": (TRIMMED, "stripped"),
    "brackets": (BRACKETS, "stripped"),
    "right": (edited("message.content.rstrip()"), "stripped on the right"),
    "left": (edited("message.content.lstrip()"), "stripped on the left"),
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("opened", ["bare", "system", "tools"])
def test_the_pieces_rebuild_any_prompt_of_one_turn(llama: Any, tools: Any, name: str, opened: str) -> None:
    template, treated = TEMPLATES[name]
    model = llama.with_template(template)
    leading = row(system=opened == "system", tools=tools if opened == "tools" else None)
    found = prompt_pieces(leading, model.tokenizer, model.recipe)
    assert (found["refused"], found["user_text"]) == ("", treated)
    system = [SYSTEM] if opened == "system" else []
    shaped = conversation_of([*system, {"role": "user", "content": SAID}], leading.tools, model.recipe["tools"])
    assert found["before"] + USER_TEXT[treated](SAID) + found["after"] == rendered(model.tokenizer, shaped, prompt=True)
    assert found["probes"].keys() == PROBES.keys()
    for name, probe in found["probes"].items():
        assert probe["user"] == PROBES[name]
        assert probe["rendered"] == found["before"] + USER_TEXT[treated](PROBES[name]) + found["after"]
        assert probe["ids"] == model.tokenizer(probe["rendered"], add_special_tokens=False)["input_ids"]


REFUSED = {
    "upper case": (edited("message.content | upper"), "edits the user's text 'Open the north gate, please.'"),
    "line breaks": (
        edited("message.content | replace('\n', ' ')"),
        r"edits the user's text ' \\n\\topen it .*' \(space",
    ),
    "escapes": (edited("message.content | replace('<', '&lt;')"), r"\(marks of other languages\): '&lt;b"),
    "twice": (edited("message.content + message.content"), "writes a user's text 2 times, wanted once"),
    "never": (edited("'x'"), "writes a user's text 0 times, wanted once"),
    "strips some": (
        edited("(message.content | trim if 'open' in message.content else message.content)"),
        "strips some texts and leaves others as they are",
    ),
    "clock": ("{{ strftime_now('%d %b %Y') }}" + edited("message.content"), "writes today's date"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_no_pieces_stand_for_is_refused_by_name(llama: Any, name: str) -> None:
    template, why = REFUSED[name]
    model = llama.with_template(template)
    found = prompt_pieces(row(), model.tokenizer, model.recipe)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(found["refused"])
    assert (found["before"], found["after"], found["user_text"], found["probes"]) == ("", "", "", {})


def test_a_template_that_refuses_a_lone_question_says_so(llama: Any) -> None:
    strict = "{% if messages | length < 2 %}{{ raise_exception('two at least') }}{% endif %}" + edited(
        "message.content"
    )
    model = llama.with_template(edited("message.content"))
    model.tokenizer.chat_template = strict
    assert "two at least" in prompt_pieces(row(), model.tokenizer, model.recipe)["refused"]


def test_the_pieces_of_a_plain_text_are_its_begin_token(gemma: Any, llama: Any) -> None:
    plain = Row([{"role": "assistant", "content": "Once."}], [], "rows.txt:1")
    for model in (gemma, llama):
        found = make_contract({"plain-text": plain}, model.tokenizer, model.recipe)["pieces"]
        bos = model.tokenizer.bos_token if model.recipe["bos_id"] is not None else ""
        assert found["after"] == ""
        assert found["before"] in ("", bos)
        assert found["probes"]["words"]["rendered"] == found["before"] + PROBES["words"]
