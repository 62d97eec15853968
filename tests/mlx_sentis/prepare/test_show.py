"""`show-mask`: a prepared row token by token, as lines for a terminal and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chat_templates import MARKED_WITHOUT_END
from click.testing import CliRunner, Result

from mlx_sentis.prepare.commands import prepare, show_mask
from mlx_sentis.prepare.show import Part, mask_of
from weights_bridge.files import read_jsonl, write_jsonl

SPLITS = ("train", "valid", "calibration", "holdout")


def call(command: Any, *words: Any, color: bool = False) -> Result:
    result = CliRunner().invoke(command, [str(word) for word in words], color=color)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def run(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("show") / "run"
    assert call(prepare, "npc-commands", "--model", llama.folder, "--out", out).exit_code == 0
    return out


def prepared(model: Any, folder: Path, messages: list[dict[str, Any]], *options: str) -> Path:
    """Return a run whose training row is one conversation."""
    for split in SPLITS:
        other = [{"role": "user", "content": f"to {split}"}, {"role": "assistant", "content": "yes"}]
        write_jsonl(folder / "rows" / f"{split}.jsonl", [{"messages": messages if split == "train" else other}])
    words = (folder / "rows", "--model", model.folder, "--out", folder / "run", *options)
    result = call(prepare, *words)
    assert result.exit_code == 0, result.stderr
    return folder / "run"


TWO_TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "one"},
    {"role": "user", "content": "b"},
    {"role": "assistant", "content": "橋"},
]


def test_every_token_has_a_line_with_place_mark_id_and_text(run: Path, llama: Any) -> None:
    row = read_jsonl(run / "data" / "holdout.jsonl")[2]
    lines = call(show_mask, run, "--split", "holdout", "--row", 3).stdout.splitlines()
    trained = sum(stop - start for start, stop in row["trained"])
    assert lines[0] == f"holdout-0003 (holdout.jsonl:3): {len(row['ids'])} tokens, {trained} trained (●)"
    assert lines[1] == "● trained   · read only   special token   place  mark  id  text"
    tokens = [line for line in lines[2:] if not line.startswith("──")]
    assert [int(line.split()[0]) for line in tokens] == list(range(len(row["ids"])))
    assert [int(line.split()[2]) for line in tokens] == row["ids"]
    assert sum("●" in line for line in tokens) == trained
    assert tokens[-2].split()[1:] == ["●", str(llama.recipe["stop_ids"][0]), "'<|im_end|>'"]


def test_each_turn_has_a_heading_with_its_tokens(llama: Any, tmp_path: Path) -> None:
    lines = call(show_mask, prepared(llama, tmp_path, TWO_TURNS)).stdout.splitlines()
    assert [line for line in lines if line.startswith("──")] == [
        "── system · 12 tokens ──",
        "── user · 7 tokens ──",
        "── assistant · 10 tokens, 4 trained ──",
        "── user · 7 tokens ──",
        "── assistant · 10 tokens, 4 trained ──",
    ]
    heading = lines.index("── assistant · 10 tokens, 4 trained ──")
    assert lines[heading + 1].endswith("'<|im_start|>'")
    assert lines[heading + 6 : heading + 10] == [line for line in lines[heading:][:11] if "●" in line]


def test_pieces_of_one_character_are_shown_as_such(llama: Any, tmp_path: Path) -> None:
    run = prepared(llama, tmp_path, TWO_TURNS)
    assert re.search(r"● +\d+ '橋'\n.*● +\d+ \(goes on: .+\)\n.*● +\d+ \(goes on: ", call(show_mask, run).stdout)
    tokens = json.loads(call(show_mask, run, "--json").stdout)["tokens"]
    assert "".join(token["text"] for token in tokens) == read_jsonl(run / "data" / "train.jsonl")[0]["text"]


def test_turns_that_are_not_trained_have_a_mark_of_their_own(llama: Any, tmp_path: Path) -> None:
    run = prepared(llama, tmp_path, TWO_TURNS, "--set", "data.train_turns=last")
    text = call(show_mask, run).stdout
    assert "○ the assistant's, not trained" in text
    assert "note: not trained: 1 turn of the assistant (data.train_turns = last)" in text
    assert [line.split()[3] for line in text.splitlines() if re.match(r" +\d+ ○", line)][-1] == "'<|im_end|>'"
    document = json.loads(call(show_mask, run, "--json").stdout)
    (first, last), trained = document["assistant_spans"], read_jsonl(run / "data" / "train.jsonl")[0]["trained"]
    assert trained == [last]
    assert not any(token["trained"] for token in document["tokens"][first[0] : first[1]])


def test_the_document_gives_tokens_turns_and_counts(run: Path) -> None:
    document = json.loads(call(show_mask, run / "data", "--json").stdout)
    row = read_jsonl(run / "data" / "train.jsonl")[0]
    assert document["schema"] == "mlx-sentis/mask/1"
    assert [token["id"] for token in document["tokens"]] == row["ids"]
    start, stop = row["trained"][0]
    assert [token["index"] for token in document["tokens"] if token["trained"]] == list(range(start, stop))
    assert "".join(token["text"] for token in document["tokens"]) == row["text"]
    assert [turn["role"] for turn in document["turns"]] == ["system", "user", "assistant"]
    assert document["turns"][0]["start"] == 0 and document["turns"][-1]["stop"] == len(row["ids"])
    assert document["trained_tokens"] == stop - start
    specials = {token["text"] for token in document["tokens"] if token["special"]}
    assert specials == {"<|im_start|>", "<|im_end|>"}


def test_a_system_text_inside_the_users_turn_is_one_turn_with_it(gemma: Any, tmp_path: Path) -> None:
    run = prepared(gemma, tmp_path, TWO_TURNS[:3])
    row = read_jsonl(run / "data" / "train.jsonl")[0]
    mask = mask_of(row, "train", gemma.tokenizer, gemma.recipe)
    assert [part.role for part in mask.parts] == ["system + user", "assistant"]
    plain = {"id": "x", "messages": [{"role": "assistant", "content": "xx"}], "tools": [], "text": "xx<end_of_turn>"}
    ids = gemma.tokenizer(plain["text"], add_special_tokens=False)["input_ids"]
    plain |= {"ids": ids, "trained": [[1, len(ids)]], "source": "rows.jsonl:1", "prompt_tokens": 1}
    assert mask_of(plain, "train", gemma.tokenizer, gemma.recipe).parts == [Part("text", 0, len(ids))]


def test_notes_tell_of_cuts_edits_and_marks(llama: Any, gemma: Any, tmp_path: Path) -> None:
    long = [{"role": "user", "content": "x" * 80}, {"role": "assistant", "content": "yes"}]
    options = ("--set", "data.too_long=left", "--set", "data.max_tokens=40")
    assert re.search(
        r"note: cut from the prompt's left: \d+ tokens",
        call(show_mask, prepared(llama, tmp_path / "cut", long, *options)).stdout,
    )
    spaced = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "  yo  "}]
    assert (
        "note: lost text in rendering: 1 turn of the assistant"
        in call(show_mask, prepared(gemma, tmp_path / "edited", spaced)).stdout
    )
    template = tmp_path / "marked.jinja"
    template.write_text(MARKED_WITHOUT_END)
    marked = prepared(llama, tmp_path / "marked", TWO_TURNS, "--template", str(template))
    assert "the end of turn '<|im_end|>' is not marked by {% generation %}" in call(show_mask, marked).stdout


def test_a_terminal_gets_colours_and_a_file_none(run: Path) -> None:
    coloured = call(show_mask, run, color=True).stdout
    assert "\x1b[32m" in coloured  # trained
    assert "\x1b[35m\x1b[1m'<|im_start|>'" in coloured  # a special token
    assert "\x1b[" not in call(show_mask, run).stdout
    assert re.sub(r"\x1b\[\d+m", "", coloured) == call(show_mask, run).stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--row", "0"), "--row takes 1 to 300"),
        (("--row", "301"), "no row 301"),
        (("--split", "test"), "unknown split 'test'"),
    ],
)
def test_what_is_not_there_is_named(run: Path, words: tuple[str, ...], wanted: str) -> None:
    result = call(show_mask, run, *words)
    assert result.exit_code == 1
    assert wanted in result.stderr


def test_without_data_it_says_what_to_run(tmp_path: Path) -> None:
    result = call(show_mask, tmp_path)
    assert result.exit_code == 1
    assert "mlx-sentis prepare" in result.stderr
