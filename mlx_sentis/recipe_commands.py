"""`recipe`: a model's own facts, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mlx_sentis.model_card import licence_in_words
from weights_bridge.console import Output, command


@command("recipe", examples=("recipe smollm2-135m", "recipe path/to/model --template chat.jinja --out recipe.json"))
@click.argument("model")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write recipe.json there as well.")
@click.option("--template", type=click.Path(path_type=Path), help="A Jinja chat template in place of the model's own.")
def recipe(output: Output, model: str, out: Path | None, template: Path | None) -> None:
    """Show what a model's files say: template, stop ids, constants, licence.

    MODEL is an embedded model's name, a Hugging Face directory or a hub id.
    """
    from mlx_sentis.recipe import make_recipe
    from weights_bridge.files import write_json

    found = make_recipe(model, template=template, say=output.story)
    if out is not None:
        write_json(out, found)
        output.story(f"wrote {out}")
    output.answer("recipe", found, as_text(found))


def as_text(recipe: dict[str, Any]) -> str:
    """Return a recipe as a table of three columns: what, value, source."""
    sources = recipe["sources"]
    stops = ", ".join(f"{i} {t}" for i, t in zip(recipe["stop_ids"], recipe["stop_tokens"], strict=True))
    marked = ", with generation markers" if recipe["template"]["generation_markers"] else ""
    digest = recipe["template"]["sha256"]
    template = "none" if digest is None else f"{recipe['template']['file']}, sha256 {digest[:12]}…{marked}"
    padding = f"{recipe['padding']['value']} on the {recipe['padding']['side']}"
    rows = [
        ("model", recipe["model"]["name"], recipe["model"]["path"]),
        ("architecture", f"{recipe['architecture']} ({recipe['family']})", sources["architecture"]),
        *((name, value, sources["constants"]) for name, value in _constant_rows(recipe["constants"])),
        ("template", template, sources["template"]),
        ("tools", recipe["tools"], sources["tools"]),
        ("stop ids", stops, sources["stop_ids"]),
        ("begin id", _or_none(recipe["bos_id"]), sources.get("bos_id", "")),
        ("padding", padding, sources["padding"]),
        ("licence", licence_in_words(recipe), sources["licence"]),
        *(("link", link, sources["links"]) for link in recipe["links"]),
        ("preprocessing", _preprocessing(recipe["preprocessing"]), sources["preprocessing"]),
        ("vendor", _vendor(recipe["hyperparameters"]), sources["hyperparameters"]),
    ]
    width = max(len(value) for _, value, _ in rows[1:])
    lines = [f"{name:14} {value:{width}}  {source}".rstrip() for name, value, source in rows]
    return "\n".join(lines + [f"{'note':14} {note}" for note in recipe["notes"]])


def _constant_rows(constants: dict[str, Any]) -> list[tuple[str, str]]:
    kinds = constants["layer_kinds"]
    sliding = kinds.count("sliding_attention")
    window = f", {sliding} of them see {constants['sliding_window']} tokens" if sliding else ""
    heads = f"{constants['heads']} query, {constants['kv_heads']} key/value, width {constants['head_dim']}"
    local = f", {constants['rope_local_base_freq']:g} in sliding layers" if sliding else ""
    tied = "one table for embedding and head" if constants["tied_head"] else "a head of its own"
    return [
        ("layers", f"{constants['layers']}{window}"),
        ("heads", heads),
        ("width", f"{constants['hidden']}, inside {constants['intermediate']}"),
        ("vocabulary", f"{constants['vocab']}, {tied}"),
        ("rotary base", f"{constants['rope_theta']:g}{local}"),
    ]


def _preprocessing(facts: dict[str, Any]) -> str:
    kind = facts.get("feature_extractor_type") or facts.get("image_processor_type") or facts.get("processor_class")
    return str(kind or ("none" if not facts else f"{len(facts)} entries"))


def _vendor(found: dict[str, Any] | None) -> str:
    if found is None:
        return "unknown"
    vendor = found["vendor"]
    return f"learning rate {vendor['learning_rate']:g}, {vendor['schedule']}, {vendor['epochs']} epochs"


def _or_none(value: Any) -> str:
    return "none" if value is None else str(value)
