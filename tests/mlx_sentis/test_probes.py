"""Prompts for measuring base weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_sentis.demo.toy import MODEL_TYPES
from mlx_sentis.probes import PROMPTS, probe_rows
from mlx_sentis.templates import load_tokenizer


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_probes_are_rendered_prompts_one_of_them_long(toy_model: Callable[[str], Path], model_type: str) -> None:
    rows, tokenizer = probe_rows(toy_model(model_type)), load_tokenizer(toy_model(model_type))
    assert [row["id"] for row in rows] == ["probe-0", "probe-1", "probe-2"]
    assert max(len(row["ids"]) for row in rows) > 100
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert row["prompt_tokens"] == len(row["ids"])
        text = tokenizer.decode(row["ids"])
        assert prompt in text
        assert text.endswith("<start_of_turn>model\n" if model_type == "gemma3_text" else "<|im_start|>assistant\n")
        assert text.count("<bos>") == (model_type == "gemma3_text")


def test_probes_of_a_model_without_template_are_the_bare_texts(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "toy"
    shutil.copytree(toy_model("gemma3_text"), folder, ignore=shutil.ignore_patterns("chat_template.jinja"))
    tokenizer = load_tokenizer(folder)
    assert [tokenizer.decode(row["ids"]) for row in probe_rows(folder)] == list(PROMPTS)
