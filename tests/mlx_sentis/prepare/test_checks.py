"""The contract and the rows checked again: the unaltered pass, each planted change is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.checks import check_contract, check_rows
from mlx_sentis.prepare.stage import prepare_data
from weights_bridge.compare import GateResult
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.settings import DataSettings


@pytest.fixture(scope="module")
def run(gemma: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared run folder with a copy of the model, as the bridge leaves it in `merged/`."""
    out = tmp_path_factory.mktemp("run")
    prepare_data("npc-commands", gemma.folder, out, gemma.recipe, DataSettings())
    shutil.copytree(gemma.folder, out / "merged")
    return out


def failed(results: list[GateResult]) -> list[str]:
    return [result.where for result in results if not result.passed]


def edited(folder: Path, name: str, change: Callable[[str], str], into: Path) -> Path:
    copy = into / "merged"
    shutil.copytree(folder, copy)
    before = (copy / name).read_text(encoding="utf-8")
    assert change(before) != before
    (copy / name).write_text(change(before), encoding="utf-8")
    return copy


def test_the_unaltered_model_passes_every_field(run: Path) -> None:
    results = check_contract(run / "merged", read_json(run / "prompt_contract.json"))
    assert failed(results) == []
    names = {result.tensor.removeprefix("contract ") for result in results}
    assert names >= {"template_sha256", "rendered", "ids", "stop_ids", "padding.value", "padding.side"}
    assert names >= {"bos.id", "bos.count_in_prompt", "tool_serialisation.style"}


def with_pad(text: str) -> str:
    return json.dumps(json.loads(text) | {"pad_token": "<|im_start|>"})


CHANGES = {
    "one more space": (
        "chat_template.jinja",
        lambda text: text.replace("'model' if", "'model ' if"),
        {"template_sha256", "tool_serialisation.sample_answer"},
    ),
    "a space in the prompt": (
        "chat_template.jinja",
        lambda text: text.replace("<start_of_turn>model\n", "<start_of_turn>model \n"),
        {"template_sha256", "rendered", "rendered_sha256", "ids"},
    ),
    "a doubled BOS": (
        "chat_template.jinja",
        lambda text: text.replace("{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"),
        {"template_sha256", "rendered", "rendered_sha256", "ids", "bos.count_in_prompt"},
    ),
    "another pad id": ("tokenizer_config.json", with_pad, {"padding.value"}),
    "another padding side": (
        "tokenizer_config.json",
        lambda text: json.dumps(json.loads(text) | {"padding_side": "left"}),
        {"padding.side"},
    ),
    "another stop id": (
        "generation_config.json",
        lambda text: json.dumps(json.loads(text) | {"eos_token_id": 1}),
        {"stop_ids"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_fails_and_names_the_fields(run: Path, tmp_path: Path, name: str) -> None:
    file, change, fields = CHANGES[name]
    contract = read_json(run / "prompt_contract.json")
    found = failed(check_contract(edited(run / "merged", file, change, tmp_path), contract))
    assert fields <= set(found)
    if file != "chat_template.jinja":
        assert set(found) == fields


def test_the_first_differing_byte_of_the_prompt_is_named(run: Path, tmp_path: Path) -> None:
    contract = read_json(run / "prompt_contract.json")
    file, change, _ = CHANGES["a space in the prompt"]
    results = check_contract(edited(run / "merged", file, change, tmp_path), contract)
    detail = next(result.detail for result in results if result.where == "rendered")
    place = contract["rendered"].encode().rindex(b"\n")
    assert detail.startswith(f"byte {place}: found 'rt_of_turn>model \\n', wanted 'rt_of_turn>model\\n'")


CONTRACT_CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rendered": lambda contract: contract.update(rendered=contract["rendered"].replace("guard", "x") + " "),
    "rendered_sha256": lambda contract: contract.update(rendered_sha256="0" * 64),
    "template_sha256": lambda contract: contract.update(template_sha256="0" * 64),
    "ids": lambda contract: contract["ids"].__setitem__(3, 7),
    "stop_ids": lambda contract: contract["stop_ids"].append(1),
    "padding.value": lambda contract: contract["padding"].update(value=9),
    "padding.side": lambda contract: contract["padding"].update(side="left"),
    "bos.id": lambda contract: contract["bos"].update(id=9),
    "bos.count_in_prompt": lambda contract: contract["bos"].update(count_in_prompt=2),
    "tool_serialisation.separators": lambda contract: contract["tool_serialisation"].update(separators=[",", ":"]),
    "tool_serialisation.key_order": lambda contract: contract["tool_serialisation"].update(key_order="sorted"),
    "tool_serialisation.sample_answer": lambda contract: contract["tool_serialisation"].update(sample_answer="{}"),
}


@pytest.mark.parametrize("field", CONTRACT_CHANGES)
def test_a_changed_contract_fails_in_that_field_alone(run: Path, gemma: Any, field: str) -> None:
    contract = read_json(run / "prompt_contract.json")
    CONTRACT_CHANGES[field](contract)
    results = check_contract(gemma.tokenizer, contract, gemma.recipe)
    assert failed(results) == [field]
    assert next(result.reason for result in results if not result.passed) == "altered"


@pytest.mark.parametrize("field", ["messages", "rendered", "ids", "stop_ids"])
def test_a_field_missing_from_the_contract_is_named(run: Path, gemma: Any, field: str) -> None:
    contract = read_json(run / "prompt_contract.json")
    del contract[field]
    results = check_contract(gemma.tokenizer, contract, gemma.recipe)
    assert failed(results) == [field]


@pytest.fixture
def rows(run: Path) -> list[dict[str, Any]]:
    return read_jsonl(run / "data" / "train.jsonl")[:6]


def test_prepared_rows_are_derived_again_exactly(run: Path, gemma: Any) -> None:
    for split in ("train", "holdout"):
        every = read_jsonl(run / "data" / f"{split}.jsonl")
        results = check_rows(every, gemma.tokenizer, gemma.recipe)
        assert len(results) == len(every)
        assert failed(results) == []


@pytest.mark.parametrize(
    ("shift", "place", "words"),
    [
        ((-1, -1), 0, "found trained, wanted not trained"),
        ((1, 1), 0, "found not trained, wanted trained"),
        ((0, -1), -1, "found not trained, wanted trained"),  # the end of turn left out
        ((0, 1), 1, "found trained, wanted not trained"),  # the line break behind it
    ],
)
def test_a_shifted_mask_is_named_with_row_and_token(
    rows: list[dict[str, Any]], run: Path, gemma: Any, shift: tuple[int, int], place: int, words: str
) -> None:
    start, stop = rows[2]["trained"][0]
    rows[2]["trained"] = [[start + shift[0], stop + shift[1]]]
    results = check_rows(rows, run / "merged", gemma.recipe)
    assert failed(results) == ["row train-0003, trained"]
    token = {0: start + min(shift[0], 0), -1: stop - 1, 1: stop}[place]
    detail = next(result.detail for result in results if not result.passed)
    assert detail.startswith(f"token {token} (id {rows[2]['ids'][token]}): {words}")


def test_changed_ids_text_and_lengths_are_named(rows: list[dict[str, Any]], gemma: Any) -> None:
    rows[0]["ids"][5] += 1
    rows[1]["text"] += " "
    rows[2]["prompt_tokens"] -= 1
    rows[3]["expect"] = {"kind": "none"}
    del rows[4]["ids"]
    assert failed(check_rows(rows, gemma.tokenizer, gemma.recipe)) == [
        "row train-0005, ids",
        "row train-0001, ids",
        "row train-0002, text",
        "row train-0003, prompt_tokens",
        "row train-0004, expect",
    ]


def test_another_template_fails_the_rows(rows: list[dict[str, Any]], gemma: Any) -> None:
    other = gemma.with_template(gemma.tokenizer.chat_template.replace("<end_of_turn>\n", "<end_of_turn>"))
    assert {where.rpartition(", ")[2] for where in failed(check_rows(rows, other.tokenizer, other.recipe))} >= {"text"}


def test_no_rows_is_no_pass(gemma: Any) -> None:
    assert [result.reason for result in check_rows([], gemma.tokenizer, gemma.recipe)] == ["nothing compared"]


def test_a_failure_shows_what_a_person_reads_and_no_whole_hash_or_base64(run: Path, tmp_path: Path) -> None:
    contract = read_json(run / "prompt_contract.json")
    change = CHANGES["a space in the prompt"]
    merged = edited(run / "merged", change[0], change[1], tmp_path)
    results = [result for result in check_contract(merged, contract) if not result.passed]
    assert {"rendered_base64", "rendered_sha256", "template_sha256"} <= {result.where for result in results}
    assert max(len(result.detail) for result in results) < 200
    (digest,) = [result.detail for result in results if result.where == "rendered_sha256"]
    assert digest.endswith(f"wanted {contract['rendered_sha256'][:12]}…")
    (coded,) = [result.detail for result in results if result.where == "rendered_base64"]
    assert coded.startswith("character ")
    stripped = {key: value for key, value in contract.items() if key != "tokenizer_vectors"}
    assert all(len(result.detail) < 200 for result in check_contract(run / "merged", stripped) if not result.passed)
