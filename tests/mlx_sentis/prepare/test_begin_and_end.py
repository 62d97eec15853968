"""What begins a row and what ends a turn: one begin token, an end that is always trained, padding that never is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers import edit_json
from mask_rows import chat, prepare, refusal

from mlx_sentis.evaluation.generator import prompt_of
from mlx_sentis.prepare.contract import make_contract, samples_of
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from mlx_sentis.probes import probe_rows
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from mlx_sentis.training.batches import make_batch


def adding_bos(model: Path, tmp_path: Path) -> Path:
    """Return a copy whose tokenizer puts `<bos>` before every text, as those of Gemma and Llama 3 do."""
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    adds = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [3], "tokens": ["<bos>"]}},
    }
    edit_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(post_processor=adds))
    return folder


def test_a_begin_token_that_tokenizer_and_template_both_add_stands_once(gemma: Any, tmp_path: Path) -> None:
    folder = adding_bos(gemma.folder, tmp_path)
    model = replace(gemma, folder=folder, tokenizer=load_tokenizer(folder), recipe=make_recipe(folder))
    row = chat("Open", "Sure.")
    found, bos = prepare(model, row), 3
    assert model.tokenizer(found.text)["input_ids"][:2] == [bos, bos]  # what rendering and tokenising again would give
    contract = make_contract(samples_of([row]), model.tokenizer, model.recipe)
    prompts = [prompt_of(found.as_json("train-0001")), contract["ids"], *(probe["ids"] for probe in probe_rows(folder))]
    for ids in (found.ids, *prompts):
        assert ids[0] == bos
        assert ids.count(bos) == 1
    assert contract["bos"] == {"id": bos, "count_in_prompt": 1, "tokenizer_adds_one": True}
    assert model.recipe["notes"] == []


def test_a_begin_token_that_only_the_tokenizer_would_add_is_noted(llama: Any, tmp_path: Path) -> None:
    folder = adding_bos(llama.folder, tmp_path)
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(bos_token="<bos>"))
    recipe = make_recipe(folder)
    (note,) = recipe["notes"]
    assert note == "the tokenizer would begin a text with <bos>, the template does not: no row has one"
    found = prepare(replace(llama, tokenizer=load_tokenizer(folder), recipe=recipe), chat("Open", "Sure."))
    assert 3 not in found.ids
    plain = Row([{"role": "assistant", "content": "Once."}], [], "rows.jsonl:1")
    found = prepare(replace(llama, tokenizer=load_tokenizer(folder), recipe=recipe), plain)
    assert found.ids[0] == 3 and found.ids.count(3) == 1  # a text by itself begins as the tokenizer begins it


def test_an_end_of_turn_that_is_not_the_tokenizers_end_is_trained_and_stops(llama: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.folder, folder)
    edit_json(folder / "generation_config.json", lambda config: config.update(eos_token_id=0))
    edit_json(folder / "tokenizer_config.json", lambda config: config.update(eos_token="<|endoftext|>"))
    recipe = make_recipe(folder)
    end = llama.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert recipe["stop_ids"] == [0, end]
    assert recipe["padding"]["value"] == 0
    assert recipe["notes"] == ["the pad id also ends a turn: labels are masked by position, never by the pad id"]
    found = prepare(replace(llama, tokenizer=load_tokenizer(folder), recipe=recipe), chat("a", "one", "b", "two"))
    assert [found.ids[stop - 1] for _, stop in found.trained] == [end, end]


def test_a_plain_text_is_trained_whole_with_its_end_and_no_template(llama: Any) -> None:
    row = read_row({"text": "xxxx\nxx"}, "rows.jsonl:1", ToolSet(), "system-block")
    found = prepare(llama, row)
    assert found.text == "xxxx\nxx<|im_end|>"
    assert (len(found.ids), found.trained, found.prompt_tokens) == (8, [(1, 8)], 1)  # nothing predicts the first token
    assert "nothing but the end of turn" in refusal(llama, Row([{"role": "assistant", "content": "x"}], [], "r:1"))


def test_the_targets_of_a_padded_batch_are_the_trained_tokens(llama: Any) -> None:
    short = {"id": "a", "ids": [7, 8, 9, 10, 11], "trained": [[3, 5]]}
    whole = {"id": "b", "ids": [7, 8, 9, 10, 11], "trained": [[1, 5]]}  # no prompt: four of five have one before them
    wide = {"id": "c", "ids": list(range(6, 15)), "trained": [[7, 9]]}
    for pad in (0, 11):
        assert make_batch([short, wide], 0, pad).trained_tokens == 2 + 2
        assert make_batch([whole, wide], 0, pad).trained_tokens == 4 + 2
        batch = make_batch([short, wide], 0, pad)
        assert batch.labels[batch.weights > 0].tolist() == [10, 11, 13, 14]
