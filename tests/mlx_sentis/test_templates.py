"""Rendering: the model's own template, and clear words when it is missing or refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import call

from mlx_sentis.demo.toy import CHATML, write_toy_model
from mlx_sentis.templates import load_tokenizer, read_template, render, render_each
from weights_bridge.errors import StageError
from weights_bridge.files import write_jsonl

USER = {"role": "user", "content": "go"}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy", "llama")


def test_a_prompt_is_a_prefix_of_the_row_with_its_answer(toy: Path) -> None:
    tokenizer = load_tokenizer(toy)
    prompt = render(tokenizer, [USER], add_generation_prompt=True)
    assert prompt == "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    row = render(tokenizer, [USER, {"role": "assistant", "content": "ok"}])
    assert row == prompt + "ok<|im_end|>\n"


def test_a_given_template_takes_the_place_of_the_models_own_to_the_byte(toy: Path, tmp_path: Path) -> None:
    given = tmp_path / "own.jinja"
    given.write_bytes(b"{% for m in messages %}[{{ m.role }}]\r\n{{ m.content }}{% endfor %}")
    tokenizer = load_tokenizer(toy, template=given)
    assert tokenizer.chat_template.encode() == given.read_bytes()
    assert render(tokenizer, [USER]).startswith("[user]")


@pytest.mark.parametrize(("content", "message"), [(b" \n", "is empty"), (b"\xff\xfe", "not a readable UTF-8")])
def test_a_template_without_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.jinja"
    path.write_bytes(content)
    with pytest.raises(StageError, match=message):
        read_template(path)
    with pytest.raises(StageError, match="no such file"):
        read_template(tmp_path / "none.jinja")


def test_a_directory_without_tokenizer_names_the_file(toy: Path) -> None:
    (toy / "tokenizer.json").unlink()
    with pytest.raises(StageError, match=r"toy/tokenizer\.json: no such file, the model has no tokenizer"):
        load_tokenizer(toy)
    shutil.rmtree(toy)
    with pytest.raises(StageError, match="no such model directory"):
        load_tokenizer(toy)


@pytest.mark.parametrize("content", ["", "{", '{"model": {}}'])
def test_a_damaged_tokenizer_is_one_line(toy: Path, content: str) -> None:
    (toy / "tokenizer.json").write_text(content)
    with pytest.raises(StageError, match="the tokenizer cannot be read") as caught:
        load_tokenizer(toy)
    assert "\n" not in caught.value.message


def test_a_model_without_template_says_how_to_give_one(toy: Path) -> None:
    (toy / "chat_template.jinja").unlink()
    with pytest.raises(StageError, match="no chat template") as caught:
        render(load_tokenizer(toy), [USER])
    assert "--template" in caught.value.hint


def test_a_template_that_is_no_jinja_names_model_and_line(toy: Path) -> None:
    (toy / "chat_template.jinja").write_text("{{ 1 }}\n{% if")
    with pytest.raises(StageError, match=r"toy: chat template, line 2: not Jinja: "):
        render(load_tokenizer(toy), [USER])


def test_a_template_that_refuses_names_the_roles(toy: Path) -> None:
    (toy / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(StageError, match=r"the chat template refuses the roles \(user, user\): roles must alternate"):
        render(load_tokenizer(toy), [USER, USER])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ 'a' + messages[0].tool }}", "no attribute 'tool'"),
        ("{{ messages[0].nope.deeper }}", "no attribute"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(10 ** 8) %}x{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_template_whose_code_fails_is_not_said_to_refuse_roles(toy: Path, source: str, why: str) -> None:
    (toy / "chat_template.jinja").write_text(source)
    with pytest.raises(StageError, match=rf"the chat template fails on the roles \(user, user\): .*{why}") as caught:
        render(load_tokenizer(toy), [USER, USER])
    assert "--template FILE" in caught.value.hint


def test_code_inside_a_model_directory_is_never_run(toy: Path, tmp_path: Path) -> None:
    (toy / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}, "tokenizer_class": "Evil"}'
    )
    (toy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(StageError, match="the tokenizer cannot be read"):
        load_tokenizer(toy)
    assert not (tmp_path / "ran").exists()


def test_a_model_without_template_is_refused_before_its_weights_are_looked_at(toy: Path, tmp_path: Path) -> None:
    (toy / "chat_template.jinja").unlink()
    weights = toy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])  # nothing could be loaded from it
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"go {i}", "completion": "ok"} for i in range(20)])
    words = ("prepare", tmp_path / "rows.jsonl", "--model", toy, "--out", tmp_path / "run")
    result = call(*words)
    assert result.exit_code == 1
    assert f"rows.jsonl:1: a conversation, and {toy} has no chat template" in result.stderr
    assert "(chat_template.jinja)" in result.stderr and "--template FILE" in result.stderr
    own = tmp_path / "own.jinja"
    own.write_text(CHATML)
    assert call(*words, "--template", own).exit_code == 0


def test_conversations_of_one_call_are_those_of_single_calls(toy: Path) -> None:
    tokenizer = load_tokenizer(toy)
    some = [[USER], [USER, {"role": "assistant", "content": "ok"}], [USER] * 3]
    assert render_each(tokenizer, some) == [render(tokenizer, messages) for messages in some]
    assert render_each(tokenizer, []) == []
    tokenizer.chat_template = "{% if messages | length > 2 %}{{ raise_exception('too many') }}{% endif %}x"
    first, second, third = render_each(tokenizer, some)
    assert (first, second) == ("x", "x")
    assert isinstance(third, StageError) and "too many" in third.message
