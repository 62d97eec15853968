"""Prompts for measuring base weights."""

from __future__ import annotations

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
