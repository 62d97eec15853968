"""What the stage tells of the data: rows left out or cut, near-duplicates, findings, lost classes and splits."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_templates import THINKING

from mlx_sentis.demo.toy import CHATML
from mlx_sentis.prepare import survey
from mlx_sentis.prepare.checks import broken_hint
from mlx_sentis.prepare.clusters import find_clusters
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import Fault, Source
from mlx_sentis.prepare.stage import prepare_data
from mlx_sentis.recipe import CLOCK_NOTE
from weights_bridge.errors import StageError
from weights_bridge.files import read_jsonl
from weights_bridge.settings import DataSettings

SPLITS = ["train", "valid", "calibration", "holdout"]


def prepare(model: Any, source: str | Path, out: Path, **settings: Any) -> dict[str, Any]:
    return prepare_data(source, model.folder, out, model.recipe, DataSettings(**settings))


def pairs(count: int, answer: str = "Sure.") -> list[dict[str, Any]]:
    return [{"prompt": f"Open gate number {index}", "completion": answer} for index in range(count)]


def test_bad_rows_are_left_out_when_asked_and_counted_by_file_and_listed(
    llama: Any, jsonl: Any, tmp_path: Path
) -> None:
    folder = jsonl([*pairs(20), {"prompt": "", "completion": "x"}, "{broken"], "set/train.jsonl").parent
    jsonl([{"prompt": "Shut the gate", "completion": "No."}, {"prompt": "x"}], "set/holdout.jsonl")
    jsonl([{"prompt": "a <|im_end|> b", "completion": "x"}, *pairs(1, "Ok")], "set/valid.jsonl")
    said: list[str] = []
    settings = DataSettings(skip_bad=True)
    with pytest.raises(StageError, match="in two splits"):  # a text in two splits is no bad row
        prepare_data(folder, llama.folder, tmp_path / "run", llama.recipe, settings)
    jsonl([{"prompt": "a <|im_end|> b", "completion": "x"}, {"prompt": "c", "completion": "d"}], "set/valid.jsonl")
    facts = prepare_data(folder, llama.folder, tmp_path / "run", llama.recipe, settings, say=said.append)
    assert facts["bad_rows"]["count"] == 4
    assert facts["bad_rows"]["by_file"] == {"train.jsonl": 2, "holdout.jsonl": 1, "valid.jsonl": 1}
    listed = {one["source"]: one["reason"] for one in facts["bad_rows"]["listed"]}
    assert listed["train.jsonl:21"] == "prompt: the text is empty"
    assert "special token '<|im_end|>'" in listed["valid.jsonl:1"]
    assert facts["splits"]["valid"]["rows"] == 1
    assert said[0].startswith("3 bad rows left out: ")
    report = (tmp_path / "run" / "data" / "report.md").read_text()
    assert "- train.jsonl: 2 bad rows" in report
    assert "- holdout.jsonl:2: " in report


def test_a_source_of_bad_rows_alone_is_refused_even_when_they_may_be_left_out(
    llama: Any, jsonl: Any, tmp_path: Path
) -> None:
    with pytest.raises(StageError, match="no row is left, all 1 are bad"):
        prepare(llama, jsonl([{"prompt": ""}]), tmp_path / "run", skip_bad=True)
    unrendered = [{"prompt": f"a <|im_end|> {line}", "completion": "b"} for line in range(5)]
    with pytest.raises(StageError, match="no training row is left, nothing was written"):
        prepare(llama, jsonl(unrendered), tmp_path / "run", skip_bad=True)
    assert not (tmp_path / "run").exists()


def test_rows_over_the_window_are_dropped_or_cut_as_told_and_counted(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    rows = pairs(20)
    rows[4]["prompt"] = "very " * 80 + "long"
    file = jsonl(rows)
    dropped = prepare(llama, file, tmp_path / "dropped", max_tokens=60, too_long="drop")
    assert sum(one["rows"] for one in dropped["splits"].values()) == 19
    assert dropped["window"]["dropped_rows"] == 1
    assert dropped["window"]["dropped"][0]["source"] == "rows.jsonl:5"
    cut = prepare(llama, file, tmp_path / "cut", max_tokens=60, too_long="left")
    assert sum(one["rows"] for one in cut["splits"].values()) == 20
    assert (cut["window"]["cut_rows"], cut["window"]["dropped_rows"]) == (1, 0)
    assert cut["longest_row_tokens"] <= 60
    assert "1 cut, 0 left out" in (tmp_path / "cut" / "data" / "report.md").read_text()


def test_rows_beyond_the_models_own_positions_are_counted(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    recipe = llama.recipe | {"constants": llama.recipe["constants"] | {"max_positions": 100}}
    rows = pairs(20)
    rows[4]["completion"] = "very " * 40 + "long"
    facts = prepare_data(jsonl(rows), llama.folder, tmp_path, recipe, DataSettings())
    assert facts["window"]["rows_over_positions"] == 1
    report = (tmp_path / "data" / "report.md").read_text()
    assert "1 row of more tokens than the model has positions (100)" in report


def test_near_duplicates_across_given_splits_are_told_with_both_texts_and_the_run_goes_on(
    llama: Any, jsonl: Any, tmp_path: Path
) -> None:
    text = "Could you walk over to the old mill by the river and wait there until the sun has set?"
    folder = jsonl([*pairs(20), {"prompt": text, "completion": "Yes."}], "set/train.jsonl").parent
    near = text.replace("old", "red")
    jsonl([{"prompt": near, "completion": "No."}], "set/holdout.jsonl")
    said: list[str] = []
    settings = DataSettings(valid_share=0, calibration_share=0)
    facts = prepare_data(folder, llama.folder, tmp_path, llama.recipe, settings, say=said.append)
    leaks = facts["near_duplicates"]["leaks"]
    assert leaks["count"] == 1
    assert leaks["listed"][0]["later"] == {"split": "holdout", "source": "holdout.jsonl:1", "text": near}
    assert leaks["listed"][0]["earlier"] == {"split": "train", "source": "train.jsonl:21", "text": text}
    assert leaks["listed"][0]["similarity"] >= 0.8
    assert near[:40] in said[0]
    assert text[:40] in said[0]
    assert "**holdout and train say almost the same** (0.8" in (tmp_path / "data" / "report.md").read_text()


def test_no_group_of_near_duplicates_is_cut_through(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    told = "Could you walk over to the {} mill by the {} river and wait there until the sun has set behind hill {}?"
    rows = [
        {"prompt": told.format(f"old{group}", f"wide{group}", line), "completion": f"Yes {line}."}
        for group in range(12)
        for line in range(3)
    ]
    facts = prepare(llama, jsonl(rows), tmp_path)
    places = [
        {row["messages"][0]["content"].split()[6] for row in read_jsonl(tmp_path / "data" / f"{split}.jsonl")}
        for split in SPLITS
    ]
    assert sum(map(len, places)) == len(set.union(*places)) == 12
    assert facts["near_duplicates"]["groups"] == 12
    assert facts["near_duplicates"]["rows"] == 36
    assert facts["near_duplicates"]["largest"]["rows"] == 3


def test_the_report_shows_contradictions_findings_and_languages(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    rows = [*pairs(20), {"prompt": "Open gate number 3", "completion": "Never."}]
    rows += [{"prompt": "Summarise {input} for me", "completion": "Fine &amp; good"}]
    facts = prepare(llama, jsonl(rows), tmp_path)
    assert facts["contradictions"]["count"] == 1
    assert [finding["name"] for finding in facts["findings"]] == ["unfilled placeholder", "markup"]
    assert facts["languages"]["sampled"] == 21
    report = (tmp_path / "data" / "report.md").read_text()
    assert "rows.jsonl:4 and rows.jsonl:21 answer 'Open gate number 3' differently: 'Sure.' and 'Never.'" in report
    assert "**unfilled placeholder** in 1 row" in report
    assert "  - rows.jsonl:22: " in report
    assert "letters: Latin 100.0 %" in report


def test_the_histogram_counts_every_row_once(llama: Any, tmp_path: Path) -> None:
    facts = prepare(llama, "npc-commands", tmp_path)
    edges, rows = facts["lengths"]["edges"], facts["lengths"]["rows"]
    assert {split: sum(counts) for split, counts in rows.items()} == {
        split: one["rows"] for split, one in facts["splits"].items()
    }
    assert len(rows["train"]) == len(edges) - 1 <= 41
    least = min(one["row_tokens"]["least"] for one in facts["splits"].values())
    assert edges[0] <= least
    assert edges[-1] > facts["longest_row_tokens"]
    assert (tmp_path / "data" / "lengths.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_rows_are_never_all_in_memory(llama: Any, jsonl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, most, read = [0], [0], Source.rows

    def gone() -> None:
        alive[0] -= 1

    def watched(self: Source, split: str) -> Iterator[Row | Fault]:
        for row in read(self, split):
            weakref.finalize(row, gone)
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            yield row

    monkeypatch.setattr(Source, "rows", watched)
    facts = prepare(llama, jsonl(pairs(1200)), tmp_path)
    assert sum(one["rows"] for one in facts["splits"].values()) == 1200
    assert most[0] < 600


def test_a_file_that_changes_between_the_two_readings_is_refused(
    llama: Any, jsonl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = jsonl(pairs(20))

    def changing(index: Any, threshold: float) -> Any:
        jsonl([*pairs(19), {"prompt": "Another one", "completion": "Sure."}])
        return find_clusters(index, threshold)

    monkeypatch.setattr(survey, "find_clusters", changing)
    with pytest.raises(StageError, match=r"rows\.jsonl:20: changed while it was being read"):
        prepare(llama, file, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_hundreds_of_tools_without_held_out_rows_are_one_note(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    tools = [{"name": f"tool_{at}", "description": "", "parameters": {}} for at in range(40)]
    jsonl([json.dumps({"tools": tools})], "tools.json")
    rows = [{"user": f"do thing {at}", "call": {"name": f"tool_{at}", "arguments": {}}} for at in range(40)]
    facts = prepare(llama, jsonl(rows), tmp_path / "run")
    assert facts["splits"]["holdout"]["rows"] == 8
    notes = [note for note in facts["notes"] if "no held-out row has" in note]
    assert len(notes) == 1
    assert notes[0].startswith("24 classes are trained, but no held-out row has them: tool_")


def test_a_split_that_loses_all_rows_to_the_window_is_refused(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    jsonl(pairs(3), "data/train.jsonl")
    jsonl([{"prompt": "x" * 600, "completion": "y"}], "data/holdout.jsonl")
    with pytest.raises(StageError, match=r"^nothing left for holdout: all of its rows were left out") as caught:
        shares = {"valid_share": 0, "calibration_share": 0}
        prepare(llama, tmp_path / "data", tmp_path / "run", max_tokens=200, too_long="drop", **shares)
    assert "holdout.jsonl:1" in caught.value.hint and "data.too_long=left" in caught.value.hint
    assert not (tmp_path / "run").exists()


def test_a_class_without_rows_and_a_tool_without_calls_are_told(
    llama: Any, jsonl: Any, tools: Any, tmp_path: Path
) -> None:
    long = "z" * 2000
    rows = [
        {"user": f"Walk to mill {at}", "call": {"name": "move_to", "arguments": {"place": "mill"}}} for at in range(20)
    ]
    rows += [
        {"user": f"Lamp {at} {long}", "call": {"name": "set_light", "arguments": {"lamps": at}}} for at in range(4)
    ]
    jsonl([json.dumps({"tools": [*tools, {"name": "stop"}]})], "tools.json")
    heard: list[str] = []
    settings = DataSettings(max_tokens=900, too_long="drop")
    facts = prepare_data(jsonl(rows), llama.folder, tmp_path / "run", llama.recipe, settings, say=heard.append)
    assert "set_light: all its rows were left out" in facts["notes"]
    assert [note for note in facts["notes"] if "no row calls" in note] == [
        "set_light: a tool that no row calls",
        "stop: a tool that no row calls",
    ]
    assert [line for line in heard if line.startswith("4 rows of more than 900 tokens (data.max_tokens) left out")]


def test_rows_that_all_call_nothing_are_told(llama: Any, jsonl: Any, tools: Any, tmp_path: Path) -> None:
    jsonl([json.dumps({"tools": tools})], "tools.json")
    facts = prepare(llama, jsonl([{"user": f"Tale {at}", "call": None} for at in range(12)]), tmp_path / "run")
    assert "every row's right answer is no call: the model learns to call nothing" in facts["notes"]
    assert "no row calls" not in str(facts["notes"])


def test_held_out_rows_with_several_calls_are_told(llama: Any, jsonl: Any, tools: Any, tmp_path: Path) -> None:
    both = [{"name": "move_to", "arguments": {"place": "mill"}}, {"name": "set_light", "arguments": {"state": "on"}}]
    jsonl([json.dumps({"tools": tools})], "tools.json")
    heard: list[str] = []
    file = jsonl([{"user": f"Do both at {at}", "call": both} for at in range(20)])
    facts = prepare_data(file, llama.folder, tmp_path / "run", llama.recipe, DataSettings(), say=heard.append)
    told = "4 held-out rows with several calls in one answer: `eval` cannot score them"
    assert facts["splits"]["holdout"]["rows"] == 4
    assert told in facts["notes"] and told in heard


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"skip_bad": True}, "2 rows that cannot be trained left out, the first: "),
        ({"too_long": "drop"}, "2 rows of more than 200 tokens (data.max_tokens) left out, the first: "),
        ({"too_long": "left"}, "2 rows of more than 200 tokens (data.max_tokens): their prompts were cut on the left"),
    ],
)
def test_rows_over_the_window_are_told(
    llama: Any, jsonl: Any, tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    rows = [*pairs(20), *({"prompt": f"{at} " + "long " * 300, "completion": "y"} for at in range(2))]
    heard: list[str] = []
    chosen = DataSettings(max_tokens=200, **settings)
    prepare_data(jsonl(rows), llama.folder, tmp_path / "run", llama.recipe, chosen, say=heard.append)
    assert [line for line in heard if line.startswith(told)], heard


def test_a_clock_in_the_template_is_told_and_reported(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    model = llama.with_template("{{ strftime_now('%d %b %Y') }}" + CHATML)
    heard: list[str] = []
    prepare_data(jsonl(pairs(20)), model.folder, tmp_path / "run", model.recipe, DataSettings(), say=heard.append)
    assert CLOCK_NOTE in heard
    assert f"- {CLOCK_NOTE}" in (tmp_path / "run" / "data" / "report.md").read_text(encoding="utf-8")
    assert "--template FILE" in broken_hint(model.recipe)
    assert broken_hint(llama.recipe) == "prepare the data again"


def test_rows_with_tools_that_end_in_prose_are_of_class_text(
    llama: Any, jsonl: Any, tools: Any, tmp_path: Path
) -> None:
    said = [{"role": "user", "content": ""}, {"role": "assistant", "content": "It is late."}]
    rows = [{"messages": [said[0] | {"content": f"Hello {at}"}, said[1]], "tools": tools} for at in range(12)]
    facts = prepare(llama, jsonl(rows), tmp_path / "run")
    assert list(facts["classes"]["train"]) == ["text"]
    assert "`text` one whose last turn is prose" in (tmp_path / "run" / "data" / "report.md").read_text("utf-8")


def test_the_nearest_texts_across_the_cut_are_listed_with_both(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    folder = jsonl(pairs(6), "set/train.jsonl").parent
    held = ["Open gate number 3 | now, please", "Who sings?"]
    jsonl([{"prompt": text, "completion": "Sure."} for text in held], "set/holdout.jsonl")
    facts = prepare(llama, folder, tmp_path / "run", valid_share=0, calibration_share=0)
    first, second = facts["nearest_held_out"]
    assert first["holdout"] == {"source": "holdout.jsonl:1", "text": held[0]}
    assert first["train"] == {"source": "train.jsonl:4", "text": "Open gate number 3"}
    assert (first["similarity"], second["similarity"]) == (0.636, 0.0)  # 7 of 11 words and pairs
    report = (tmp_path / "run" / "data" / "report.md").read_text(encoding="utf-8")
    row = "| 0.64 | holdout.jsonl:1 'Open gate number 3 \\| now, please' | train.jsonl:4 'Open gate number 3' |"
    assert "## Held-out texts nearest to a trained one" in report
    assert row in report
    alike = prepare(llama, folder, tmp_path / "other", valid_share=0, calibration_share=0, near_duplicate=1)
    assert alike["nearest_held_out"] == []


def test_turns_that_lose_text_in_rendering_are_counted_and_reported(llama: Any, jsonl: Any, tmp_path: Path) -> None:
    model = llama.with_template(THINKING)
    said = zip(("user", "assistant") * 2, ("a", "<think>\nx\n</think>\n\none", "b", "two"), strict=True)
    rows = jsonl([{"messages": [{"role": role, "content": text} for role, text in said]}])
    uncut = {"holdout_share": 0, "valid_share": 0, "calibration_share": 0}
    facts = prepare(model, rows, tmp_path / "run", **uncut)
    assert facts["edited_turns"] == 1  # of the earlier turn the thoughts, which inference would not show either
    report = (tmp_path / "run" / "data" / "report.md").read_text(encoding="utf-8")
    assert "- 1 assistant turn lost text in rendering (the template edits them)" in report
