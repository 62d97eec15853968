"""`prepare` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mlx_sentis.prepare.commands import check_data, prepare, show_mask
from mlx_sentis.prepare.formats.containers import NAMES
from mlx_sentis.prepare.run import run_prepare
from weights_bridge.errors import StageError
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings, resolve


def call(command: Any, *words: Any) -> Result:
    result = CliRunner().invoke(command, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def run(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("commands") / "run"
    assert call(prepare, "npc-commands", "--model", llama.folder, "--out", out).exit_code == 0
    return out


def test_prepare_writes_recipe_data_contract_and_a_manifest_that_holds(run: Path) -> None:
    recorded = RunFolder.existing(run)
    assert recorded.altered() == []
    assert set(recorded.recorded_hashes()) == {
        "recipe.json",
        "prompt_contract.json",
        *(f"data/{name}.jsonl" for name in ("train", "valid", "calibration", "holdout")),
        "data/dataset.json",
        "data/report.md",
        "data/lengths.png",
    }


def test_prepare_answers_with_the_report_or_with_the_document(llama: Any, tmp_path: Path) -> None:
    words = ("npc-commands", "--model", llama.folder, "--out", tmp_path / "run", "--set", "data.seed=7")
    assert "| train | 300 |" in call(prepare, *words).stdout
    document = json.loads(call(prepare, *words, "--json").stdout)
    assert document["schema"] == "mlx-sentis/dataset/1"
    assert document["seed"] == 7


def test_form_map_and_skip_bad_are_flags_of_their_own(llama: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"Open gate {at}", "reply": "Yes.", "extra": at} for at in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"question": "", "reply": "x"}]))
    words = (prepare, file, "--model", llama.folder, "--out", tmp_path / "run", "--json")
    mapped = ("--format", "completion", "--map", "prompt=question", "--map", "completion=reply")
    refused = call(*words, *mapped)
    assert refused.exit_code == 1
    assert "rows.jsonl:21: prompt: the text is empty" in refused.stderr
    document = json.loads(call(*words, *mapped, "--skip-bad").stdout)
    assert document["format"]["name"] == "completion"
    assert document["bad_rows"]["count"] == 1
    assert sum(one["rows"] for one in document["splits"].values()) == 20
    assert call(*words, "--map", "prompt").exit_code == 2


def test_a_given_template_is_used_and_found_again(llama: Any, tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text(llama.tokenizer.chat_template.replace("<|im_start|>' +", "<|im_start|> ' +"))
    words = ("npc-commands", "--model", llama.folder, "--out", tmp_path / "run", "--template", template)
    assert call(prepare, *words).exit_code == 1  # the header of its prompt lacks the space
    template.write_text("{{ bos_token }}" + llama.tokenizer.chat_template)
    assert call(prepare, *words).exit_code == 0
    assert "<|endoftext|>" in call(show_mask, tmp_path / "run").stdout


@pytest.mark.parametrize(
    ("data", "more", "code", "wanted"),
    [
        ("nothing.jsonl", (), 1, "no such file, folder or shipped set"),
        ("npc-commands", ("--set", "data.max_tokens=20"), 1, "tokens, wanted at most 20"),
        ("npc-commands", ("--set", "data.sead=20"), 2, "unknown key 'data.sead'"),
        ("npc-commands", ("--template", "none.jinja"), 1, "none.jinja: no such file"),
        ("npc-commands", ("--template", "."), 1, "a folder, wanted a Jinja chat template"),
        ("npc-commands", ("--set", "train.epochs=3"), 2, "--set train.epochs: nothing here goes by it"),
        ("npc-commands", ("--set", "data.source=x"), 2, "--set data.source: nothing here goes by it"),
        ("npc-commands", ("--model", ""), 2, "--model: the name is empty"),
        ("", (), 2, "DATA: the name is empty"),
        ("/dev/null", (), 1, "/dev/null: neither a file nor a folder"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    llama: Any, tmp_path: Path, data: str, more: tuple[str, ...], code: int, wanted: str
) -> None:
    result = call(prepare, data, "--model", llama.folder, "--out", tmp_path / "run", *more)
    assert result.exit_code == code
    assert wanted in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "run").exists()


def test_the_commands_load_no_framework_until_they_run() -> None:
    script = (
        "import sys; import mlx_sentis.prepare.commands; "
        "print([m for m in ('torch', 'mlx', 'transformers', 'jinja2', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [prepare, check_data])
def test_the_help_lists_every_format(command: Any) -> None:
    text = " ".join(call(command, "--help").stdout.split())
    listed = text.partition("where looking at them is not enough: ")[2].partition(".")[0]
    assert listed.replace("; files:", ",").split(", ") == [name for name in NAMES if name != "auto"]


def test_which_turns_are_trained_is_the_same_by_flag_by_file_and_in_python(llama: Any, tmp_path: Path) -> None:
    said = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, "abcd", strict=True)]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": said}) + "\n", encoding="utf-8")
    uncut = ("holdout_share", "valid_share", "calibration_share")
    flags = [word for key in uncut for word in ("--set", f"data.{key}=0")]

    def trained(*more: str) -> int:
        words = (prepare, rows, "--model", llama.folder, "--out", tmp_path / "run", "--json", *flags, *more)
        return json.loads(call(*words).stdout)["splits"]["train"]["trained_tokens"]

    by_flag = trained("--set", "data.train_turns=last")
    assert trained() == 2 * by_flag == 4  # a letter and the end of turn, twice
    (tmp_path / "own.toml").write_text('[data]\ntrain_turns = "last"\n' + "".join(f"{key} = 0\n" for key in uncut))
    by_file = resolve(file=tmp_path / "own.toml").settings.data
    in_python = DataSettings(train_turns="last", holdout_share=0, valid_share=0, calibration_share=0)
    for settings in (by_file, in_python):
        facts = run_prepare(str(rows), str(llama.folder), tmp_path / "run", settings)
        assert facts["splits"]["train"]["trained_tokens"] == by_flag
    (tmp_path / "own.toml").write_text("[data]\nmask_prompt = true\n")
    with pytest.raises(StageError, match="mask_prompt"):
        resolve(file=tmp_path / "own.toml")
