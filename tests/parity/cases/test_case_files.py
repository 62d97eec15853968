"""Case files: every number comes from a record and says which, and a number changed by hand is found."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import call, edit_json

import converters
from parity.cases.cells import Facts
from parity.cases.keep import LISTS, all_records, text_faults, write_case
from parity.cases.pages import case_page, eval_log, verified_exports
from parity.cases.records import READ, collect, content_sha256, file_name, read_records, without_paths
from weights_bridge.files import read_json, write_json
from weights_bridge.run_folder import RunFolder

CASES = Path(converters.__file__).parent / "cases"
RECORDS = read_records(CASES / "records" / "smollm2-135m.json")
FIELDS = ["Model and constants", "Where the recipe stands", "Data", "Fine-tune", "Export", "Traps, by class"]
PLACE = re.compile(r"`([\w./-]+): ([\w.-]+)`((?:, `[\w.-]+`)*)")


def altered(change: Any) -> dict[str, Any]:
    records = copy.deepcopy(RECORDS)
    change(records["sources"])
    return records | {"sha256": content_sha256(records)}


def named(model: str) -> dict[str, Any]:
    records = RECORDS | {"model": model}
    return records | {"sha256": content_sha256(records)}


def test_the_pages_of_the_repository_are_what_their_records_say() -> None:
    result = call("case", "--check", CASES)
    assert result.exit_code == 0, result.output
    assert [one["model"] for one in all_records(CASES)] == ["smollm2-135m"]


@pytest.mark.parametrize("name", ["smollm2-135m.md", *LISTS])
def test_each_number_of_a_page_that_is_changed_by_hand_is_found_in_its_line(name: str) -> None:
    text = (CASES / name).read_text(encoding="utf-8")
    wanted = {"smollm2-135m.md": lambda: case_page(RECORDS), **{k: lambda k=k: LISTS[k]([RECORDS]) for k in LISTS}}[
        name
    ]()
    lines = text.split("\n")
    changed = 0
    for at, line in enumerate(lines):
        for number in re.finditer(r"\d+", line):
            other = line[: number.start()] + str(int(number[0]) + 1) + line[number.end() :]
            page = "\n".join([*lines[:at], other, *lines[at + 1 :]])
            assert [fault.partition(":")[0] for fault in text_faults(page, wanted)] == [f"line {at + 1}"]
            changed += 1
    assert changed > 20


@pytest.mark.parametrize(
    "change, wanted",
    [
        (lambda lines: [*lines[:5], "| loss | 0.1 | here |", *lines[5:]], "line 6: found '| loss"),
        (lambda lines: [*lines[:20], *lines[21:]], "line 21: missing before it"),
        (lambda lines: [*lines, "more"], "line {end}: found 'more'"),
        (lambda lines: [line + "\r" for line in lines], "line 1: found"),
    ],
)
def test_a_line_put_in_taken_out_or_ended_otherwise_is_found(change: Any, wanted: str) -> None:
    lines = case_page(RECORDS).split("\n")
    faults = list(text_faults("\n".join(change(lines)), case_page(RECORDS)))
    assert faults[0].startswith(wanted.format(end=len(lines) + 1))


def test_every_value_stands_where_its_line_says() -> None:
    facts, places = Facts(RECORDS), 0
    for page in (case_page(RECORDS), verified_exports([RECORDS]), eval_log([RECORDS])):
        for found in PLACE.finditer(page):
            for place in [found[2], *re.findall(r"`([\w.-]+)`", found[3])]:
                assert facts.has(found[1], place), f"{found[1]}: {place}"
                places += 1
        tables = [line for line in page.split("\n") if line.startswith("| ") and "| from |" not in line]
        unsaid = [line for line in tables if "`" not in line and "---" not in line]
        assert [line for line in unsaid if "| file | SHA-256 |" not in line] == []
    assert places > 150


def test_a_changed_record_changes_the_page_that_says_it() -> None:
    seen = 0
    for file, place in [
        ("recipe.json", "constants.layers"),
        ("recipe.json", "constants.kv_heads"),
        ("recipe.json", "constants.head_dim"),
        ("recipe.json", "constants.vocab"),
        ("onnx/model.onnx", "weights"),
        ("data/dataset.json", "splits.train.rows"),
        ("manifest.json", "stages.train.facts.updates"),
        ("eval/axes.json", "after.whole_call.right"),
    ]:
        *inner, last = place.split(".")

        def one_more(sources: dict[str, Any], file: str = file, inner: list[str] = inner, last: str = last) -> None:
            found = sources[file]
            for key in inner:
                found = found[key]
            found[last] += 1

        faults = list(text_faults(case_page(RECORDS), case_page(altered(one_more))))
        assert any(f"line {at}" in fault for fault in faults for at in range(10, 250)), place
        seen += len(faults) > 1  # the hash of the records, and the value
    assert seen == 8


def test_the_records_of_the_repository_are_small_and_know_no_machine() -> None:
    file = CASES / "records" / "smollm2-135m.json"
    text = file.read_text(encoding="utf-8")
    assert file.stat().st_size < 100_000
    assert not re.search(r"\"[^\"]*(?<![\w:/.])/\w+/", text.replace("\\n", " "))
    assert not re.search(r"home|tmp|Users|scratch|runs/", text)


def test_the_texts_of_a_licence_are_told_where_a_model_brings_some() -> None:
    def lines(files: list[str]) -> list[str]:
        page = case_page(altered(lambda sources: sources["recipe.json"].update(licence_files=files)))
        return [line for line in page.splitlines() if "licence_files" in line]

    assert lines([]) == []
    assert lines(["NOTICE.md", "TERMS.html"]) == [
        "| its texts | NOTICE.md, TERMS.html | `recipe.json: licence_files` |"
    ]


def test_an_unfinished_run_says_not_run_and_claims_nothing() -> None:
    def only_scanned(sources: dict[str, Any]) -> None:
        stages = sources["manifest.json"]["stages"]
        for name in list(sources):
            if name not in ("manifest.json", "recipe.json", "scan.json", "config.toml"):
                del sources[name]
        for name in list(stages):
            if name not in ("recipe", "scan"):
                del stages[name]

    records = altered(only_scanned)
    page = case_page(records)
    assert (
        "**Status: as it is, not fine-tuned here; gate A0, MLX ↔ torch: not run; edge A, base weights: not run" in page
    )
    assert "Fine-tune: not run" in page and "would-be recipe is the vendor's" in page
    assert "| weights | not run | `onnx/base.onnx: weights` |" in page
    assert "| all | not run | not run | not run | `eval/axes.json` |" in page
    assert " pass |" not in page and "dB" not in page
    assert "edge A not run" in verified_exports([records]) and "| all | not run |" in eval_log([records])


def test_what_a_stage_that_ran_says_nothing_of_is_not_recorded_and_not_called_not_run() -> None:
    sources = {"recipe.json": {"links": []}, "manifest.json": {"stages": {"train": {"seconds": 1.5}}}}
    facts = Facts({"model": "m", "date": "", "hashes": {}, "sources": sources})
    assert [facts.value("recipe.json", place) for place in ("links", "notes")] == ["none", "not recorded"]
    assert facts.value("scan.json", "findings") == "not run"
    found = [facts.value("manifest.json", f"stages.{place}") for place in ("train.seconds", "train.seed", "swap.seed")]
    assert found == ["1.5", "not recorded", "not run"]


def test_a_prediction_of_sentis_is_told_as_one_and_no_prediction_as_not_run() -> None:
    without = case_page(altered(lambda sources: sources.pop("parity/triple.json", None)))
    assert "edge B: not run.**" in without
    assert "| edge B, ONNX Runtime ↔ Sentis | not run |" in without
    row = {"edge": "B", "sides": "ONNX Runtime ↔ Sentis", "verdict": "pass", "sentis": "predicted (2.6)"}
    row |= {"psnr_db": 131.2, "budget_db": 100.0, "reason": "within budget", "worst": "train-0001 / logits"}
    page = case_page(altered(lambda sources: sources.update({"parity/triple.json": {"rows": [row]}})))
    assert "edge B: predicted (2.6): pass.**" in page and "not run" not in page.partition("## 7.")[2]
    assert (
        "| pass | predicted (2.6): worst 131.2 dB, budget 100 (train-0001 / logits) | `parity/triple.json: rows` |"
        in page
    )


def test_traps_stand_under_their_class_with_the_pass_that_mended_them() -> None:
    found = {"id": "GELU.TANH", "severity": "deviation", "taxonomy": "C", "mend": "exact form", "passes": ["gelu_tanh"]}
    left = {"id": "IF.UNSUPPORTED", "severity": "error", "taxonomy": "B", "mend": "fold it", "passes": []}

    def plant(sources: dict[str, Any]) -> None:
        fix = sources["fix.json"]
        fix["findings"] = {"before": [found | {"places": 12}, left | {"places": 2}], "after": [left | {"places": 2}]}
        fix["passes"].append({"name": "gelu_tanh", "why": "…", "changed": 12, "proof": "131.2 dB", "left": 0})

    page = case_page(altered(plant))
    assert "| `GELU.TANH` (deviation) × 12 | `gelu_tanh` (131.2 dB) | `fix.json: findings.before` |" in page
    assert "| `IF.UNSUPPORTED` (error) × 2 | left: fold it; 2 left | `fix.json: findings.before` |" in page
    assert "| A | an operator, or a form of it, that Sentis cannot run | nothing |" in page
    assert "`gelu_tanh` × 12 (131.2 dB)" in page
    assert page.count("`GELU.TANH`") == page.count("`IF.UNSUPPORTED`") == 1  # under its own class, and no other


def test_a_pass_that_changed_nothing_has_mended_nothing() -> None:
    found = {"id": "GELU.TANH", "severity": "deviation", "taxonomy": "C", "mend": "exact form", "passes": ["gelu_tanh"]}

    def plant(sources: dict[str, Any]) -> None:
        sources["fix.json"]["findings"] = {"before": [found | {"places": 3}], "after": [found | {"places": 3}]}
        sources["fix.json"]["passes"].append({"name": "gelu_tanh", "why": "…", "changed": 0, "proof": "–", "left": 3})

    page = case_page(altered(plant))
    assert "| `GELU.TANH` (deviation) × 3 | left: exact form; 3 left | `fix.json: findings.before` |" in page


def test_one_edge_that_failed_is_no_verified_export() -> None:
    for file in ("a-base.json", "a.json"):
        page = verified_exports([altered(lambda sources, file=file: sources[f"parity/{file}"].update(passed=False))])
        assert "edge A FAILED" in page and "edge A passed" not in page
    assert "edge A passed" in verified_exports([RECORDS])


def test_the_log_of_verdicts_has_no_score() -> None:
    log = eval_log([RECORDS]).replace("p < 0.05", "").replace("field 7", "").replace(RECORDS["date"], "")
    assert "| improved |" in log and "| regressed |" in log
    assert not re.search(r"\d", log.replace("smollm2-135m", ""))


def test_paths_of_the_machine_become_their_last_part() -> None:
    known = ("/home/Jane Doe/models/My Model", "/home/Jane Doe")
    given = {
        "a": "/home/Jane Doe/models/My Model/config.json: model_type",
        "b": [
            "see /srv/x/rows.jsonl and https://example.org/a/b",
            "60/100 of n/a",
            r"C:\Users\me\rows.csv",
            "~/x/y.txt",
        ],
        "/home/Jane Doe/models/My Model": 1,
    }
    assert without_paths(given, known) == {
        "a": "config.json: model_type",
        "b": ["see rows.jsonl and https://example.org/a/b", "60/100 of n/a", "rows.csv", "y.txt"],
        "My Model": 1,
    }
    assert [file_name(name) for name in ("Org/Some Model", "/m/x/", "..", "toy-llama")] == [
        "some-model",
        "x",
        "model",
        "toy-llama",
    ]


def test_a_page_that_somebody_wrote_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "smollm2-135m.md").write_text("my notes\n")
    result = call("case", CASES / "records" / "smollm2-135m.json", "--out", tmp_path)
    assert result.exit_code == 1 and "not made by this command" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2-135m.md"]


def test_lists_hold_every_model_of_their_folder_once(tmp_path: Path) -> None:
    write_case(RECORDS, tmp_path)
    write_case(named("another"), tmp_path)
    write_case(RECORDS, tmp_path)
    text = (tmp_path / "verified_exports.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([\w-]+),", text, re.M) == ["another", "smollm2-135m"]
    assert call("case", "--check", tmp_path).exit_code == 0
    (tmp_path / "records" / "another.json").unlink()
    result = call("case", "--check", tmp_path)
    assert result.exit_code == 3 and "another.md: a page without records/another.json" in result.output


def test_records_that_were_changed_by_hand_are_no_records(tmp_path: Path) -> None:
    write_case(RECORDS, tmp_path)
    kept = tmp_path / "records" / "smollm2-135m.json"
    edit_json(kept, lambda found: found["sources"]["manifest.json"]["stages"]["train"]["facts"].update(updates=7))
    result = call("case", "--check", tmp_path)
    assert result.exit_code == 3 and "smollm2-135m.json: changed since it was made" in result.stderr
    for words in ((kept,), (kept, "--out", tmp_path), (kept, "--check", tmp_path / "smollm2-135m.md")):
        result = call("case", *words)
        assert result.exit_code == 1 and "changed since it was made" in result.stderr


FORGED: dict[str, Any] = {
    "no date": lambda d: d.pop("date"),
    "sources of another kind": lambda d: d.update(sources=[]),
    "a gate of another form": lambda d: d["sources"]["parity/a.json"].update(passed="maybe"),
    "a model that leads elsewhere": lambda d: d.update(model="../../x"),
    "a model that is a number": lambda d: d.update(model=3),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_records_of_another_form_are_refused_though_their_hash_is_right(tmp_path: Path, change: Any) -> None:
    records = copy.deepcopy(RECORDS)
    change(records)
    path = tmp_path / "cases" / "records" / "x.json"
    write_json(path, records | {"sha256": content_sha256(records)})
    for words, code in (((path,), 1), ((path, "--out", tmp_path / "out"), 1), (("--check", tmp_path / "cases"), 3)):
        result = call("case", *words)
        assert (result.exit_code, "Traceback" in result.output) == (code, False)
        assert "not in the form that this version reads" in result.stderr or "no file's name" in result.stderr
        assert not (tmp_path / "out").exists()


def test_files_of_a_run_in_another_form_are_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name in READ:
        path = run.path(*name.split("/"))
        if name in ("manifest.json", "recipe.json"):
            continue
        for text in (
            "{}",
            "[1]",
            "3",
            '"x"',
            '{"stages": 1, "findings": [{}], "passes": [{}], "rows": [1]}',
            "[a",
            "\xff",
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="latin-1")
            result = call("case", run.root)
            assert result.exception is None or isinstance(result.exception, SystemExit), (name, text)
            if text == "3" and name != "parity/triple.json":  # without its stage it is not looked at
                assert result.exit_code == 1 and str(path) in result.stderr, (name, text)
        path.unlink()


def test_records_edited_together_with_their_page_are_found_by_the_run_alone(tmp_path: Path) -> None:
    edited = altered(lambda sources: sources["manifest.json"]["stages"]["train"]["facts"].update(updates=7))
    write_case(edited, tmp_path)
    assert call("case", "--check", tmp_path).exit_code == 0
    result = call("case", CASES / "records" / "smollm2-135m.json", "--check", tmp_path / "smollm2-135m.md")
    assert result.exit_code == 3 and "found '| updates | 7 |" in result.output


@pytest.mark.parametrize(
    "words, code, said",
    [
        ((), 2, "give a run folder"),
        (("RUN", "--out", "x", "--check", "y"), 2, "give one of them"),
        (("nowhere",), 1, "not a run folder"),
        (("nowhere.json",), 1, "no such file"),
        (("BAD",), 1, "not records of schema"),
        (("GOOD", "--check", "nowhere.md"), 1, "no such file"),
        (("GOOD", "--check", "BINARY"), 1, "not readable as UTF-8"),
        (("--check", "EMPTY"), 1, "no records/*.json"),
        (("--check", "BINARY"), 2, "no folder"),
    ],
)
def test_bad_calls_are_refused_in_one_line(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "page.md").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").mkdir()
    names = {"BAD": tmp_path / "bad.json", "GOOD": CASES / "records" / "smollm2-135m.json"}
    names |= {"BINARY": tmp_path / "page.md", "EMPTY": tmp_path / "empty"}
    result = call("case", *(names.get(word, word) for word in words))
    assert result.exit_code == code and said in result.output and "Traceback" not in result.output


def make_run(root: Path) -> RunFolder:
    run = RunFolder(root)
    with run.stage("recipe") as stage:
        recipe = RECORDS["sources"]["recipe.json"]
        model = {"name": "/models/Mine/Toy", "path": "/models/Mine/Toy"}
        write_json(run.path("recipe.json"), recipe | {"model": model, "notes": ["read from /models/Mine/Toy/a.json"]})
        stage.wrote(run.path("recipe.json"))
    return run


def test_a_record_that_was_changed_behind_a_stages_back_is_refused_by_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert collect(run)["model"] == "toy"
    assert "/models" not in json.dumps(collect(run))
    edit_json(run.path("recipe.json"), lambda found: found["constants"].update(layers=31))
    result = call("case", run.root)
    assert result.exit_code == 1 and "recipe.json: sha256 found" in result.output


def test_what_is_done_with_a_run_later_changes_no_case(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = collect(run)
    for later in ("unity", "quantise", "validate", "parity"):
        with run.stage(later, []) as stage:
            stage.facts["files"] = 44
    assert collect(run) == before
    with run.stage("export", []) as stage:
        stage.facts["findings"] = []
    assert collect(run) != before


def test_json_carries_page_and_records(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    result = call("case", run.root, "--json", "-q")
    answer = json.loads(result.stdout)
    assert answer["schema"] == "mlx-sentis/case/1" and answer["page"] == case_page(answer["records"])
    assert answer["records"] == collect(run)
    failed = call("case", "--check", CASES, "--json")
    assert json.loads(failed.stdout) == {
        "schema": "mlx-sentis/case/1",
        "checked": str(CASES),
        "passed": True,
        "faults": [],
    }
    assert read_json(CASES / "records" / "smollm2-135m.json")["schema"] == "mlx-sentis/case-records/1"
