"""The package reads a tokenizer.json of a fixed set of parts; what lies outside is told before it is shipped (K04)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call, edit_json
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from converters.facts import facts
from converters.scan import scan
from converters.scan.tokenizer import parts_of, tokenizer_findings

KNOWN = facts("2.5")["tokenizer_parts"]


@pytest.fixture
def told(tmp_path: Path) -> Callable[[dict[str, Any]], list[str]]:
    """told(document) -> what the scanner says of a directory with this tokenizer.json."""

    def tell(document: dict[str, Any]) -> list[str]:
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        return [finding.what.partition(":")[0] for finding in tokenizer_findings(tmp_path, facts("2.6"))]

    return tell


def document(**parts: Any) -> dict[str, Any]:
    """Return the document that the tokenizers library writes for these parts."""
    tokenizer = Tokenizer(models.BPE())
    for step, part in parts.items():
        setattr(tokenizer, step, part)
    return json.loads(tokenizer.to_str())


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3_text"])
def test_a_tokenizer_of_known_parts_is_clean(toy_model: Callable[[str], Path], architecture: str) -> None:
    assert scan(toy_model(architecture)) == []


def test_parts_that_the_reader_does_not_know_are_listed_nested_ones_too(told: Any) -> None:
    nested = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Digits()])  # pyright: ignore
    found = document(
        normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.NFD()]),  # pyright: ignore
        pre_tokenizer=nested,
        post_processor=processors.BertProcessing(("[SEP]", 0), ("[CLS]", 1)),
        decoder=decoders.CTC(),
    )
    assert told(found) == ["normalizer NFD, pre_tokenizer UnicodeScripts, post_processor BertProcessing, decoder CTC"]


def test_parts_of_a_sequence_in_a_sequence_are_found() -> None:
    inner = {"type": "Sequence", "decoders": [{"type": "CTC"}, {"type": "Fuse"}]}
    assert list(parts_of({"decoder": {"type": "Sequence", "decoders": [inner]}})) == [
        ("decoder", "Sequence"),
        ("decoder", "Sequence"),
        ("decoder", "CTC"),
        ("decoder", "Fuse"),
    ]


def test_a_model_without_a_name_is_none_to_tell_and_no_tokenizer_neither(told: Any, tmp_path: Path) -> None:
    assert told({"model": {"vocab": {}}, "normalizer": None}) == []
    (tmp_path / "tokenizer.json").unlink()
    assert list(tokenizer_findings(tmp_path, facts("2.6"))) == []


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "\udcff"])
def test_a_tokenizer_that_is_no_json_object_is_a_finding_and_no_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (found,) = tokenizer_findings(tmp_path, facts("2.6"))
    assert found.what.startswith("no JSON object: ")


def test_the_version_without_a_reader_knows_no_part(toy_model: Callable[[str], Path]) -> None:
    (found,) = scan(toy_model("llama"), "2.4")
    assert (found.id, found.severity, found.node) == ("TOKENIZER.PARTS", "warning", "tokenizer.json")
    assert "pre_tokenizer ByteLevel, model BPE" in found.what


def test_the_command_warns_of_an_unknown_part_by_its_name(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(toy_model("llama"), folder)
    edit_json(folder / "tokenizer.json", lambda found: found.update(normalizer={"type": "Reversed"}))
    done = call("scan", folder, "--json")
    assert done.exit_code == 0, "the tokenizer is optional in Sentis: a warning"
    (found,) = json.loads(done.stdout)["findings"]
    assert found["what"].startswith("normalizer Reversed: ")


def test_the_steps_of_the_facts_are_those_that_are_read() -> None:
    from converters.scan.tokenizer import STEPS

    assert set(KNOWN) == set(STEPS)
    assert all(names == sorted(names) for names in KNOWN.values())
