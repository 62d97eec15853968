"""The recipe: what a model's own files say about its use, each fact with the file it came from.

Nothing is looked up by a known name. The end-of-turn token, for example, is whatever the model's template puts after
an assistant's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlx_sentis.cases import case_of
from mlx_sentis.catalogue import resolve_model
from mlx_sentis.model_card import card_facts
from mlx_sentis.templates import TEMPLATE_HINT, adds_bos, load_tokenizer, marks_generation, render
from weights_bridge.architectures.table import dimensions
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of_text
from weights_bridge.model_folder import layer_kinds, open_model_folder, require_stage

SCHEMA = "mlx-sentis/recipe/1"
USER = {"role": "user", "content": "Where is the mill?"}
CLOCK_NOTE = "the template writes today's date: rows rendered on another day differ; --template fixes it"
NO_TEMPLATE_NOTE = "no chat template in its files: only plain texts can be trained; --template FILE gives one"
CLOCK = re.compile(r"strftime_now\([^()]*\)")
PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
ANSWERS = ("By the river", "Over there!")  # no common beginning and no common end
SAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": "look_around",
        "description": "Look around.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def make_recipe(
    model: str | Path, *, template: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Return the recipe of a model (`recipe.json`).

    Args:
        model: a directory, or a name that `resolve_model` takes.
        template: a Jinja file in place of the model's own chat template.
        say: hears what is happening.

    Raises:
        StageError: no such model, or its directory lacks the configuration or the tokenizer.
    """
    folder = model if isinstance(model, Path) else resolve_model(model, say)
    if folder.is_dir() and not (folder / "config.json").is_file():
        hint = "give a whole Hugging Face directory: config.json, *.safetensors, tokenizer.json"
        raise StageError(f"{folder}/config.json: no such file", hint=hint)
    opened = open_model_folder(folder)
    require_stage(opened, "recipe")
    tokenizer = load_tokenizer(folder, template=template)
    if len(tokenizer) > opened.config["vocab_size"]:
        found = f"the tokenizer has {len(tokenizer)} ids, the embedding {opened.config['vocab_size']} rows"
        raise StageError(f"{folder}: {found}", hint="tokenizer and weights must come from the same model")
    facts: dict[str, Any] = {}
    sources = {"architecture": "config.json: model_type", "constants": "config.json"}
    parts = (template_facts(folder, tokenizer, template), stop_facts(folder, tokenizer), token_facts(tokenizer))
    for found, origins in (*parts, card_facts(folder), preprocessing_facts(folder)):
        facts |= found
        sources |= origins
    facts |= padding_facts(tokenizer, facts, sources)
    facts["notes"] += template_notes(tokenizer)
    facts |= hyperparameter_facts([str(model), folder.name, *facts["base_models"]], sources)
    return {
        "schema": SCHEMA,
        "model": {"name": str(model), "path": str(folder.resolve())},
        "architecture": opened.architecture.model_type,
        "family": opened.architecture.family,
        "constants": constants(opened.config),
        **facts,
        "sources": sources,
    }


def preprocessing_facts(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the model's files say of audio or image preprocessing, an empty object for a model of text."""
    for name in PREPROCESSORS:
        if (folder / name).is_file():
            return {"preprocessing": read_json(folder / name)}, {"preprocessing": name}
    return {"preprocessing": {}}, {"preprocessing": f"no {' and no '.join(PREPROCESSORS)}: text only"}


def hyperparameter_facts(names: list[str], sources: dict[str, str]) -> dict[str, Any]:
    """Return what a case file knows of the vendor's own training, None when no case knows the model; adds its source.

    It is shown, not applied: a vendor trains all weights on general data, which a small adapter on one task is not.
    Where our defaults differ, the case says why.
    """
    found = case_of(names)
    if found is None:
        sources["hyperparameters"] = "no case file knows this model"
        return {"hyperparameters": None}
    file, case = found
    sources["hyperparameters"] = f"cases/{file}: {case['vendor']['source']}"
    return {"hyperparameters": {"vendor": case["vendor"], "deviations": case["deviations"]}}


def constants(config: dict[str, Any]) -> dict[str, Any]:
    """Return the architecture's constants from a normalised configuration."""
    sizes, kinds = dimensions(config), layer_kinds(config)
    slides = "sliding_attention" in kinds  # Qwen2 configurations name a window that no layer uses
    return {
        "layers": sizes["L"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_dim": sizes["D"],
        "hidden": sizes["H"],
        "intermediate": sizes["I"],
        "vocab": sizes["V"],
        "sliding_window": config.get("sliding_window") if slides else None,
        "layer_kinds": kinds,
        "rope_theta": config.get("rope_theta"),
        "rope_local_base_freq": config.get("rope_local_base_freq") if slides else None,
        "rms_norm_eps": config.get("rms_norm_eps"),
        "max_positions": config.get("max_position_embeddings"),
        "tied_head": bool(config["tie_word_embeddings"]),
    }


def template_facts(folder: Path, tokenizer: Any, given: Path | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the chat template (file, hash of its text) and how it takes tools, with their sources.

    A model without one (source `none`, hash None) can be trained on plain texts, which no template frames.

    Raises:
        StageError: there are several templates, and none is the default.
    """
    if not tokenizer.chat_template:
        missing = "no chat_template.jinja, and no chat_template in tokenizer_config.json"
        none = {"file": "", "sha256": None, "source": "none", "generation_markers": False}
        return {"template": none, "tools": "system-block"}, {"template": missing, "tools": "no chat template"}
    named = _named_templates(tokenizer)
    if "default" not in named:
        found = ", ".join(sorted(named))
        raise StageError(f"{folder}: chat templates {found}, none is named 'default'", hint=TEMPLATE_HINT)
    file, source = _template_origin(folder, named["default"], given)
    facts: dict[str, Any] = {"file": file, "sha256": sha256_of_text(named["default"]), "source": source}
    facts["generation_markers"] = any(map(marks_generation, named.values()))
    if len(named) > 1:
        facts["others"] = {name: sha256_of_text(text) for name, text in sorted(named.items()) if name != "default"}
    tools = "template" if has_tools_branch(tokenizer) else "system-block"
    how = "rendered with and without a tool: " + ("they differ" if tools == "template" else "no difference")
    return {"template": facts, "tools": tools}, {"template": source, "tools": how}


def _named_templates(tokenizer: Any) -> dict[str, str]:
    forms = tokenizer.chat_template
    return forms if isinstance(forms, dict) else {"default": forms}


def _template_origin(folder: Path, text: str, given: Path | None) -> tuple[str, str]:
    if given is not None:
        return str(given.resolve()), "--template"
    jinja = folder / "chat_template.jinja"
    if jinja.is_file() and jinja.read_text(encoding="utf-8") == text:
        return jinja.name, jinja.name
    config = folder / "tokenizer_config.json"
    stored = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(stored, list):
        return config.name, f"{config.name}: chat_template[default]"
    return (config.name, f"{config.name}: chat_template") if stored == text else ("", "transformers")


def has_tools_branch(tokenizer: Any) -> bool:
    """Tell whether the template writes tools by itself: a render with one differs from a render without."""
    openings = ([USER], [{"role": "system", "content": "You are a guard."}, USER])
    for messages in openings:
        try:
            plain = render(tokenizer, messages)
            if render(tokenizer, messages, tools=[SAMPLE_TOOL]) != plain:
                return True
        except StageError:  # a template may refuse a system turn: the other opening decides
            continue
    return False


def end_of_turn(tokenizer: Any) -> int | None:
    """Return the id of the added token that the template puts after an assistant's words, None when it puts none.

    Two renders that differ in the answer alone share their ending; its first added token (line breaks aside) ends
    the turn.
    """
    ending = common_ending(*(render(tokenizer, [USER, {"role": "assistant", "content": said}]) for said in ANSWERS))
    added = tokenizer.added_tokens_decoder
    ids = tokenizer(ending, add_special_tokens=False)["input_ids"]
    return next((token for token in ids if token in added and added[token].content.strip()), None)


def common_ending(first: str, second: str) -> str:
    """Return the longest text that both end in."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    length = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    return first[len(first) - length :]


def adds_a_system_turn(tokenizer: Any) -> bool:
    """Tell whether the template opens a conversation with words that no message brought.

    What stands before the first user turn and before the second one ends alike (the header of a user turn); the rest
    of the first opening may be added tokens (a begin token) or today's date, which is empty here, not words.
    """
    first, answer, second = USER, {"role": "assistant", "content": ANSWERS[0]}, {"role": "user", "content": "And now?"}
    text = render(tokenizer, [first, answer, second])
    if CLOCK.search(template := _named_templates(tokenizer)["default"]):
        timeless = CLOCK.sub("''", template)
        text = tokenizer.apply_chat_template([first, answer, second], chat_template=timeless, tokenize=False)
    opening, _, rest = text.partition(first["content"])
    between = rest.partition(answer["content"])[2].partition(second["content"])[0]
    words = opening.removesuffix(common_ending(opening, between))
    for token in tokenizer.added_tokens_decoder.values():
        words = words.replace(token.content, "")
    return bool(words.strip())


def stop_facts(folder: Path, tokenizer: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the ids that end a generation: the configured ones, then the template's own end token.

    Raises:
        StageError: there is none, or a configured one is not an id of the tokenizer.
    """
    ids, source = configured_stops(folder)
    end = end_of_turn(tokenizer) if tokenizer.chat_template else None
    sources = [source] if ids else []
    if end is not None:
        sources.append("the token that the template puts after an answer")
        ids += [end] if end not in ids else []
    if not ids:
        hint = "add eos_token_id to generation_config.json"
        raise StageError(f"{folder}: neither its files nor its template name a token that ends an answer", hint=hint)
    if wrong := [token for token in ids if not 0 <= token < len(tokenizer)]:
        raise StageError(f"{folder}/{source}: ids {wrong}, the tokenizer has 0 to {len(tokenizer) - 1}")
    facts = {"stop_ids": ids, "stop_tokens": tokenizer.convert_ids_to_tokens(ids)}
    return facts, {"stop_ids": "; ".join(sources)}


def configured_stops(folder: Path) -> tuple[list[int], str]:
    """Return `eos_token_id` (a number or a list in the files) as a list, and the file that has it.

    Raises:
        StageError: it is neither a number nor a list of numbers.
    """
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        found = read_json(path).get("eos_token_id") if path.is_file() else None
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
            raise StageError(f"{path}: eos_token_id found {found!r}, wanted a number or a list of numbers")
        return list(dict.fromkeys(ids)), f"{name}: eos_token_id"
    return [], ""


def token_facts(tokenizer: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the ids of the begin and the pad token, None where the tokenizer has none."""
    facts = {"bos_id": tokenizer.bos_token_id, "pad_id": tokenizer.pad_token_id}
    words = {"bos_id": "bos_token", "pad_id": "pad_token"}
    return facts, {key: f"tokenizer_config.json: {words[key]}" for key, value in facts.items() if value is not None}


def padding_facts(tokenizer: Any, facts: dict[str, Any], sources: dict[str, str]) -> dict[str, Any]:
    """Return the padding rule and the notes that a reader of the recipe must not miss; adds its source."""
    stops, pad = facts["stop_ids"], facts["pad_id"]
    sources["padding"] = sources.get("pad_id", "no pad token: the first stop id takes its place")
    notes = []
    if pad is None or pad in stops:
        notes.append("the pad id also ends a turn: labels are masked by position, never by the pad id")
    value = stops[0] if pad is None else pad
    return {"padding": {"value": value, "side": tokenizer.padding_side}, "notes": notes}


def template_notes(tokenizer: Any) -> list[str]:
    """Return what the template does that a reader of the recipe must not miss."""
    if not tokenizer.chat_template:
        return [NO_TEMPLATE_NOTE]
    notes = []
    if adds_a_system_turn(tokenizer):
        notes.append("the template adds a system turn of its own when the messages bring none")
    if adds_bos(tokenizer) and not render(tokenizer, [USER]).startswith(tokenizer.bos_token):
        begin = tokenizer.bos_token
        notes.append(f"the tokenizer would begin a text with {begin}, the template does not: no row has one")
    if any("strftime_now" in text for text in _named_templates(tokenizer).values()):
        notes.append(CLOCK_NOTE)
    return notes
