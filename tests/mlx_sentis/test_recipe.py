"""The recipe: values of four architectures, every form a template comes in, and what is missing is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mlx_sentis import cases
from mlx_sentis.demo.toy import CHATML, GEMMA, MODEL_TYPES, write_toy_model
from mlx_sentis.model_card import licence_in_words
from mlx_sentis.recipe import common_ending, make_recipe
from mlx_sentis.recipe_commands import as_text
from mlx_sentis.recipe_commands import recipe as recipe_command
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of_text, write_json

TOOLS = "{% if tools %}{% for tool in tools %}{{ tool.function.name }};{% endfor %}{% endif %}" + CHATML
DEFAULT_SYSTEM = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + CHATML


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy", "llama")


def change(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    values = read_json(path) | changes
    write_json(path, {key: value for key, value in values.items() if value is not None})


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_recipe_of_each_architecture(tmp_path: Path, model_type: str) -> None:
    folder = write_toy_model(tmp_path / "m", model_type)
    found = make_recipe(folder)
    gemma = model_type == "gemma3_text"
    assert found["schema"] == "mlx-sentis/recipe/1"
    assert found["model"] == {"name": str(folder), "path": str(folder)}
    assert (found["architecture"], found["family"], found["preprocessing"]) == (model_type, "causal_lm", {})
    sizes = ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate")
    assert [found["constants"][key] for key in sizes] == [2, 4, 2, 16, 64, 96]
    assert found["constants"]["rope_theta"] == 50000.0
    assert found["constants"]["rope_local_base_freq"] == (5000.0 if gemma else None)
    assert found["constants"]["sliding_window"] == (32 if gemma else None)
    assert found["constants"]["layer_kinds"] == ["sliding_attention" if gemma else "full_attention", "full_attention"]
    assert found["constants"]["tied_head"] is (model_type != "qwen3")
    template = GEMMA if gemma else CHATML
    source = "chat_template.jinja"
    assert found["template"] == {
        "file": source,
        "sha256": sha256_of_text(template),
        "source": source,
        "generation_markers": False,
    }
    assert (found["stop_ids"], found["stop_tokens"]) == (([5], ["<end_of_turn>"]) if gemma else ([2], ["<|im_end|>"]))
    assert (found["bos_id"], found["pad_id"]) == (3 if gemma else 0, 0)
    assert found["padding"] == {"value": 0, "side": "right"}
    assert (found["tools"], found["licence"], found["links"], found["notes"]) == ("system-block", "mit", [], [])
    assert found["hyperparameters"] is None and "no case file" in found["sources"]["hyperparameters"]
    assert {"template", "stop_ids", "bos_id", "padding", "tools", "licence", "constants"} <= found["sources"].keys()


def test_the_template_s_end_token_joins_the_configured_ones(toy: Path) -> None:
    change(toy / "generation_config.json", eos_token_id=0)
    found = make_recipe(toy)
    assert (found["stop_ids"], found["stop_tokens"]) == ([0, 2], ["<|endoftext|>", "<|im_end|>"])
    assert found["sources"]["stop_ids"].startswith("generation_config.json: eos_token_id; the token that the template")


def test_the_end_token_is_found_by_its_place_not_by_its_name(toy: Path) -> None:
    (toy / "chat_template.jinja").write_text(CHATML.replace("<|im_end|>", "<bos>"))
    change(toy / "generation_config.json", eos_token_id=[2, 0, 2])
    assert make_recipe(toy)["stop_tokens"] == ["<|im_end|>", "<|endoftext|>", "<bos>"]


def test_stop_ids_come_from_config_json_when_there_is_no_generation_config(toy: Path) -> None:
    (toy / "generation_config.json").unlink()
    (toy / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    found = make_recipe(toy)
    assert (found["stop_ids"], found["sources"]["stop_ids"]) == ([2], "config.json: eos_token_id")


def test_a_model_that_names_no_end_is_refused(toy: Path) -> None:
    (toy / "generation_config.json").unlink()
    change(toy / "config.json", eos_token_id=None)
    (toy / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    with pytest.raises(StageError, match="neither its files nor its template name a token that ends an answer"):
        make_recipe(toy)


@pytest.mark.parametrize(("value", "message"), [("</s>", "found '</s>', wanted a number"), ([9999], r"ids \[9999\]")])
def test_stop_ids_that_are_no_ids_are_refused(toy: Path, value: Any, message: str) -> None:
    change(toy / "generation_config.json", eos_token_id=value)
    with pytest.raises(StageError, match=rf"generation_config\.json: eos_token_id.*{message}"):
        make_recipe(toy)


def in_jinja(folder: Path, text: str) -> str:
    (folder / "chat_template.jinja").write_text(text)
    return "chat_template.jinja"


def in_tokenizer_config(folder: Path, text: str) -> str:
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=text)
    return "tokenizer_config.json: chat_template"


def in_a_list(folder: Path, text: str) -> str:
    (folder / "chat_template.jinja").unlink()
    forms = [{"name": "rag", "template": "rag"}, {"name": "default", "template": text}]
    change(folder / "tokenizer_config.json", chat_template=forms)
    return "tokenizer_config.json: chat_template[default]"


@pytest.mark.parametrize("put", [in_jinja, in_tokenizer_config, in_a_list])
def test_each_form_of_a_template_gives_the_same_facts(toy: Path, put: Callable[[Path, str], str]) -> None:
    source = put(toy, CHATML)
    found = make_recipe(toy)
    assert found["template"]["source"] == found["sources"]["template"] == source
    assert found["template"]["file"] == source.partition(":")[0]
    assert found["template"]["sha256"] == sha256_of_text(CHATML)
    assert found["stop_tokens"] == ["<|im_end|>"]
    assert found["template"].get("others", {}).keys() == ({"rag"} if put is in_a_list else set())


def test_a_list_of_templates_without_default_is_refused(toy: Path) -> None:
    (toy / "chat_template.jinja").unlink()
    change(toy / "tokenizer_config.json", chat_template=[{"name": "rag", "template": CHATML}])
    with pytest.raises(StageError, match="chat templates rag, none is named 'default'"):
        make_recipe(toy)


def test_a_tools_branch_is_found_by_rendering_with_and_without_a_tool(toy: Path) -> None:
    in_jinja(toy, TOOLS)
    assert make_recipe(toy)["tools"] == "template"
    in_jinja(toy, "{# tools #}" + CHATML)
    assert make_recipe(toy)["tools"] == "system-block"
    in_jinja(toy, "{% if messages[0].role == 'system' %}" + TOOLS + "{% else %}" + CHATML + "{% endif %}")
    assert make_recipe(toy)["tools"] == "template"


def test_a_tool_use_template_in_a_list_counts_as_a_tools_branch(toy: Path) -> None:
    (toy / "chat_template.jinja").unlink()
    forms = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]
    change(toy / "tokenizer_config.json", chat_template=forms)
    assert make_recipe(toy)["tools"] == "template"


def test_notes_tell_of_a_system_turn_that_no_message_brought_and_of_a_pad_that_ends_turns(toy: Path) -> None:
    in_jinja(toy, DEFAULT_SYSTEM)
    change(toy / "tokenizer_config.json", pad_token="<|im_end|>")
    pad, system = make_recipe(toy)["notes"]
    assert "never by the pad id" in pad and "adds a system turn" in system


def test_without_a_pad_token_the_first_stop_id_pads(toy: Path) -> None:
    change(toy / "tokenizer_config.json", pad_token=None, padding_side="left")
    found = make_recipe(toy)
    assert (found["pad_id"], found["padding"]) == (None, {"value": 2, "side": "left"})
    assert found["sources"]["padding"].startswith("no pad token")


def test_a_licence_that_no_card_names_is_told_by_the_files_to_read(toy: Path) -> None:
    (toy / "README.md").unlink(missing_ok=True)
    assert licence_in_words(make_recipe(toy)) == "not stated in the model's files"
    for name in ("GEMMA_TERMS.html", "NOTICE.md", "LICENSE"):
        (toy / name).write_text("read me")
    found = make_recipe(toy)
    assert (found["licence"], found["licence_files"]) == (None, ["GEMMA_TERMS.html", "LICENSE", "NOTICE.md"])
    assert licence_in_words(found) == "not named; it is in GEMMA_TERMS.html, LICENSE, NOTICE.md"
    (toy / "README.md").write_text("---\nlicense: gemma\n---\n")
    assert licence_in_words(make_recipe(toy)) == "gemma"


@pytest.mark.parametrize(
    ("card", "licence", "links"),
    [
        (
            "---\nlicense: apache-2.0\nbase_model: owner/base\n---\n",
            "apache-2.0",
            ["https://huggingface.co/owner/base"],
        ),
        ("---\nlicense: other\nlicense_name: gemma\nbase_model: [a/b]\n---\n", "gemma", ["https://huggingface.co/a/b"]),
        ("---\nlicense: [mit, cc0-1.0]\n---\n", "mit, cc0-1.0", []),
        ("No front matter.\n", None, []),
        ("---\nlicense: [broken\n---\n", None, []),
        (None, None, []),
    ],
)
def test_licence_and_links_come_from_the_front_matter(
    toy: Path, card: str | None, licence: str | None, links: list[str]
) -> None:
    (toy / "README.md").unlink()
    if card is not None:
        (toy / "README.md").write_text(card)
    found = make_recipe(toy)
    assert (found["licence"], found["links"]) == (licence, links)
    assert "README.md" in found["sources"]["licence"]


def test_the_vendors_hyperparameters_come_from_the_case_file_of_the_cards_base_model(toy: Path) -> None:
    (toy / "README.md").write_text("---\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct\n---\n")
    found = make_recipe(toy)
    vendor = found["hyperparameters"]["vendor"]
    assert (vendor["learning_rate"], vendor["epochs"], vendor["schedule"]) == (1e-3, 2, "cosine")
    assert found["sources"]["hyperparameters"] == f"cases/smollm2-135m.toml: {vendor['source']}"
    assert "learning rate 0.001, cosine, 2 epochs" in as_text(found)


def test_every_case_names_its_models_its_source_and_why_the_defaults_deviate() -> None:
    files = list(Path(cases.__path__[0]).glob("*.toml"))
    assert files
    for file in files:
        name, case = cases.case_of([file.stem]) or ("", {})
        assert name == file.name and case["base_models"]
        assert case["vendor"]["source"].startswith("https://")
        assert {"learning_rate", "schedule", "epochs", "method"} <= case["vendor"].keys()
        assert all(isinstance(why, str) and why for why in case["deviations"].values())
    assert cases.case_of(["nobody/knows-it"]) is None


def test_preprocessing_is_what_the_models_file_says(toy: Path) -> None:
    facts = {"feature_extractor_type": "WhisperFeatureExtractor", "sampling_rate": 16000}
    (toy / "preprocessor_config.json").write_text(json.dumps(facts))
    found = make_recipe(toy)
    assert (found["preprocessing"], found["sources"]["preprocessing"]) == (facts, "preprocessor_config.json")
    assert "WhisperFeatureExtractor" in as_text(found)


@pytest.mark.parametrize(
    ("file", "message", "hint"),
    [
        ("config.json", r"/config\.json: no such file", "whole Hugging Face directory"),
        ("tokenizer.json", r"/tokenizer\.json: no such file", "tokenizer files of the original"),
    ],
)
def test_a_missing_file_is_named_with_a_hint(toy: Path, file: str, message: str, hint: str) -> None:
    (toy / file).unlink()
    with pytest.raises(StageError, match=message) as caught:
        make_recipe(toy)
    assert hint in caught.value.hint


def test_a_tokenizer_larger_than_the_embedding_is_refused(toy: Path) -> None:
    change(toy / "config.json", vocab_size=100)
    with pytest.raises(StageError, match=r"the tokenizer has \d+ ids, the embedding 100 rows"):
        make_recipe(toy)


def test_the_command_takes_a_template_and_writes_the_recipe(toy: Path, tmp_path: Path) -> None:
    (toy / "chat_template.jinja").rename(tmp_path / "own.jinja")
    out = tmp_path / "out" / "recipe.json"
    arguments = [str(toy), "--template", str(tmp_path / "own.jinja"), "--out", str(out)]
    done = CliRunner().invoke(recipe_command, arguments)
    assert done.exit_code == 0, done.output
    assert "2 <|im_end|>" in done.stdout and "--template" in done.stdout
    written = read_json(out)
    assert written["template"]["file"] == str(tmp_path / "own.jinja")
    as_json = json.loads(CliRunner().invoke(recipe_command, [*arguments, "--json"]).stdout)
    assert as_json == written


@pytest.mark.parametrize("given", [True, False], ids=["--template", "the model's own"])
def test_a_template_that_is_no_jinja_is_told_with_its_line(toy: Path, tmp_path: Path, given: bool) -> None:
    file = tmp_path / "own.jinja" if given else toy / "chat_template.jinja"
    file.write_text("{% for m in messages %}\n{{ m['content' }}\n{% endfor %}")
    with pytest.raises(StageError) as caught:
        make_recipe(toy, template=file if given else None)
    assert caught.value.message.startswith(f"{file}:2: not Jinja: " if given else f"{toy}: chat template, line 2: ")
    assert "roles" not in str(caught.value)


def test_an_unknown_architecture_names_the_file(toy: Path) -> None:
    change(toy / "config.json", model_type="lama")
    with pytest.raises(StageError) as caught:
        make_recipe(toy)
    assert caught.value.message.startswith(f"{toy}/config.json: unknown architecture")
    assert "did you mean llama?" in caught.value.hint


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_model_without_template_has_a_recipe_that_says_so(tmp_path: Path, model_type: str) -> None:
    framed = make_recipe(write_toy_model(tmp_path / "toy", model_type))
    (tmp_path / "toy" / "chat_template.jinja").unlink()
    found = make_recipe(tmp_path / "toy")
    assert found["template"] == {"file": "", "sha256": None, "source": "none", "generation_markers": False}
    assert found["sources"]["template"] == "no chat_template.jinja, and no chat_template in tokenizer_config.json"
    assert any("only plain texts can be trained; --template FILE" in note for note in found["notes"])
    own = ("template", "sources", "notes")
    assert {k: v for k, v in found.items() if k not in own} == {k: v for k, v in framed.items() if k not in own}
    done = CliRunner().invoke(recipe_command, [str(tmp_path / "toy")])
    assert done.exit_code == 0, done.output
    assert re.search(r"^template +none +no chat_template", done.stdout, re.M)


def test_the_command_exits_1_with_a_hint_when_the_tokenizer_is_missing(toy: Path) -> None:
    (toy / "tokenizer.json").unlink()
    done = CliRunner().invoke(recipe_command, [str(toy)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and "hint: " in done.stderr


def test_common_ending_of_texts() -> None:
    assert common_ending("abcd", "xbcd") == "bcd"
    assert common_ending("cd", "abcd") == "cd"
    assert common_ending("ab", "ba") == common_ending("", "a") == ""


@pytest.mark.parametrize(
    ("template", "marked", "dated"),
    [
        (CHATML, False, False),
        (CHATML.replace("{% endfor %}", "{% generation %}{% endgeneration %}{% endfor %}"), True, False),
        ("{# {% generation %} #}" + CHATML, False, False),
        ("{{ strftime_now('%d %b %Y') }}" + CHATML, False, True),
    ],
)
def test_generation_markers_and_a_date_in_the_template_are_told(
    toy: Path, template: str, marked: bool, dated: bool
) -> None:
    (toy / "chat_template.jinja").write_text(template)
    found = make_recipe(toy)
    assert found["template"]["generation_markers"] is marked
    assert any("writes today's date" in note for note in found["notes"]) is dated
    assert not any("adds a system turn" in note for note in found["notes"])  # the date is no turn
