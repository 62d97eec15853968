"""A run folder verified again through the public command: the files first, then the gates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parity import verify
from parity.commands import parity
from parity.verify import integrity, settings_of, template_results, verify_run
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of_text, write_json
from weights_bridge.run_folder import SCHEMA, RunFolder


def verified(root: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(parity, [str(root), "--edge", "a", "--json", "-q", *options])
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}


def failures(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [result for gate in document["gates"] for result in gate["results"] if not result["passed"]]


def test_swapped_heads_in_a_recorded_graph_exit_3_and_name_file_and_layer(
    run: RunFolder, swap_heads: Callable[..., None]
) -> None:
    code, document = verified(run.root)
    assert (code, document["passed"], [gate["gate"] for gate in document["gates"]]) == (0, True, ["a", "a"])
    graph = run.path("onnx", "model.onnx")
    swap_heads(graph, graph, "model.layers.1.self_attn.q_proj.weight")
    code, document = verified(run.root)
    found = failures(document)
    assert code == 3
    assert (found[0]["reason"], found[0]["where"]) == ("altered", "onnx/model.onnx")
    assert (found[1]["reason"], found[1]["where"]) == ("below budget", "layer 1 (self_attn.q_proj)")
    assert [gate["passed"] for gate in document["gates"]] == [False, True, False]  # the base graph is untouched


def test_a_changed_byte_in_any_recorded_file_exits_3_and_the_reports_stay(run: RunFolder) -> None:
    assert verified(run.root)[0] == 0
    kept = run.path("parity", "a.json").read_bytes()
    target = run.path("data", "holdout.jsonl")
    target.write_bytes(target.read_bytes() + b"\n")
    code, document = verified(run.root)
    assert code == 3
    assert [(f["reason"], f["where"]) for f in failures(document)] == [("altered", "data/holdout.jsonl")]
    assert run.path("parity", "a.json").read_bytes() == kept


def test_gates_that_are_measured_one_after_the_other_stay_recorded(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run.stage("edge-a-tuned") as stage:
        write_json(run.path("parity", "a.json"), {"passed": True})
        stage.wrote(run.path("parity", "a.json"))
    verify_run(run, "a")
    both = verify._plan
    monkeypatch.setattr(verify, "_plan", lambda *asked: both(*asked)[:1])  # as another edge would leave a.json alone
    verify_run(run, "a")
    assert integrity(run) == []


def test_a_missing_graph_is_named_and_the_rest_is_measured(run: RunFolder) -> None:
    run.path("onnx", "model.onnx").unlink()
    code, document = verified(run.root)
    assert code == 3
    assert [(f["reason"], f["where"]) for f in failures(document)] == [("missing", "onnx/model.onnx")]
    assert [gate["gate"] for gate in document["gates"]] == ["integrity", "a"]


def test_a_contract_that_cannot_be_used_is_a_failed_result_not_a_crash(run: RunFolder) -> None:
    run.path("onnx", "contract.json").write_text("{")
    code, document = verified(run.root)
    assert code == 3
    assert {f["reason"] for f in failures(document)} == {"altered", "not run"}


def test_a_changed_template_byte_in_the_model_directory_is_found(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "chat_template.jinja").write_text("{{ messages }}")
    run = RunFolder(tmp_path / "run")
    with run.stage("recipe", [model]) as stage:
        write_json(run.path("recipe.json"), {"model": {"path": str(model)}})
        stage.wrote(run.path("recipe.json"))
    assert integrity(run) == []
    (model / "chat_template.jinja").write_text("{{ messages  }}")
    (found,) = integrity(run)
    assert (found.reason, found.where) == ("altered", str(model / "chat_template.jinja"))
    shutil.rmtree(model)
    assert [result.reason for result in integrity(run)] == ["missing"]


def test_the_table_puts_failures_first_and_says_where(run: RunFolder, swap_heads: Callable[..., None]) -> None:
    graph = run.path("onnx", "base.onnx")
    swap_heads(graph, graph, "model.layers.0.self_attn.o_proj.weight")
    done = CliRunner().invoke(parity, [str(run.root), "--edge", "a"])
    lines = done.stdout.splitlines()
    assert lines[2].startswith("FAIL  integrity") and lines[3].startswith("FAIL  a ")
    assert "layer 0 (self_attn.o_proj)" in lines[3]
    told = done.stderr[done.stderr.index("error: ") :].splitlines()
    assert told[0].endswith("results failed; the first of each gate:")
    assert told[1].startswith("  integrity: file onnx/base.onnx: altered at onnx/base.onnx")
    assert told[2].startswith("  a: first below the budget / r-2: below budget at layer 0 (self_attn.o_proj)")


def test_localise_lists_the_inside_of_a_graph_that_passes(run: RunFolder) -> None:
    done = CliRunner().invoke(parity, [str(run.root), "--edge", "a", "--localise", "-q"])
    assert done.exit_code == 0
    assert "model.layers.1.mlp.down_proj" in done.stdout


def test_a_graph_and_a_fixture_need_no_run(run: RunFolder, tmp_path: Path) -> None:
    from parity.verify import edge_a_of_run

    edge_a_of_run(run, "tuned", fixtures_to=tmp_path / "fixtures")
    name = read_json(tmp_path / "fixtures" / "index.json")["fixtures"][0]["npz"]
    fixture = ["--fixture", str(tmp_path / "fixtures" / name)]
    tuned, base = ([str(run.path("onnx", f"{side}.onnx")), *fixture] for side in ("model", "base"))
    assert CliRunner().invoke(parity, ["--model", *tuned]).exit_code == 0
    assert CliRunner().invoke(parity, ["--model", *base]).exit_code == 3


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_template_that_is_not_the_recipes_is_found_wherever_it_is_kept(tmp_path: Path, where: str) -> None:
    def keep(text: str) -> None:
        stored = json.dumps({"chat_template": [{"name": "default", "template": text}]})
        (tmp_path / where).write_text(text if where.endswith("jinja") else stored)

    template = {"file": where, "sha256": sha256_of_text("{{ messages }}")}
    recipe = {"model": {"path": str(tmp_path)}, "template": template}
    keep("{{ messages }}")
    assert template_results(recipe) == []
    keep("{{ messages  }}")
    (found,) = template_results(recipe)
    assert (found.reason, found.where) == ("altered", str(tmp_path / where))


@pytest.mark.parametrize("arguments", [[], ["--model", "m.onnx"], ["run", "--model", "m.onnx", "--fixture", "f.npz"]])
def test_neither_run_nor_model_with_fixture_is_a_wrong_use(arguments: list[str]) -> None:
    assert CliRunner().invoke(parity, arguments).exit_code == 2


def test_what_is_no_run_folder_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(parity, [str(tmp_path)])
    assert done.exit_code == 1 and "not a run folder" in done.stderr


def test_a_run_without_a_graph_has_nothing_to_measure(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_json(run.path("manifest.json"), {"schema": SCHEMA, "stages": {}})
    with pytest.raises(StageError, match="nothing to measure"):
        verify_run(run, "a")
    assert settings_of(run).parity.greedy_tokens == 32
