"""Rendering: the model's own template, and clear words when it is missing or refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlx_sentis.demo.toy import write_toy_model
from mlx_sentis.templates import load_tokenizer, read_template, render
from weights_bridge.errors import StageError

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


@pytest.mark.parametrize("source", ["{{ raise_exception('roles must alternate') }}", "{{ 'a' + messages[0].tool }}"])
def test_a_template_that_refuses_names_the_roles(toy: Path, source: str) -> None:
    (toy / "chat_template.jinja").write_text(source)
    with pytest.raises(StageError, match=r"the chat template refuses the roles \(user, user\)"):
        render(load_tokenizer(toy), [USER, USER])


def test_code_inside_a_model_directory_is_never_run(toy: Path, tmp_path: Path) -> None:
    (toy / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}, "tokenizer_class": "Evil"}'
    )
    (toy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(StageError, match="the tokenizer cannot be read"):
        load_tokenizer(toy)
    assert not (tmp_path / "ran").exists()
