"""Licence and links of a model: from the front matter of its README.md, and the texts that lie beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD = "README.md"
TEXTS = re.compile(r"licen[cs]e|copying|notice|terms|use_policy", re.IGNORECASE)  # names of files that bind


def card_facts(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the licence (None when unknown) and links, with their sources.

    A card that is missing or cannot be read leaves them unknown; it is not an error.
    """
    card, fault = front_matter(folder / CARD)
    licence = _licence(card)
    bases = _as_list(card.get("base_model"))
    links = [f"https://huggingface.co/{name}" for name in bases]
    links += [link for link in _as_list(card.get("license_link")) if link.startswith("http")]
    origin = fault or (f"{CARD}: license" if licence else f"{CARD}: no license in its front matter")
    front = fault or f"{CARD}: front matter"
    facts = {"licence": licence, "licence_files": licence_files(folder), "links": links, "base_models": bases}
    return facts, {"licence": origin, "links": front, "base_models": front}


def licence_files(folder: Path) -> list[str]:
    """Return the names of the texts in a model's directory that look like a licence, terms or a notice."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and TEXTS.search(path.stem))


def licence_in_words(recipe: Mapping[str, Any]) -> str:
    """Return a recipe's licence as one reads it: its name, or which files to read where none is named."""
    if recipe.get("licence"):
        return str(recipe["licence"])
    texts = recipe.get("licence_files")  # recipes of older versions have none
    return f"not named; it is in {', '.join(texts)}" if texts else "not stated in the model's files"


def front_matter(path: Path) -> tuple[dict[str, Any], str]:
    """Return the front matter of a model card, and why there is none."""
    from huggingface_hub import metadata_load

    if not path.is_file():
        return {}, f"no {path.name}"
    try:
        return metadata_load(path) or {}, ""
    except Exception:  # YAML's errors, ours to report and nothing to stop for
        return {}, f"{path.name}: the front matter cannot be read"


def _licence(card: dict[str, Any]) -> str | None:
    names = _as_list(card.get("license"))
    if names == ["other"]:
        names = _as_list(card.get("license_name")) or names
    return ", ".join(names) or None


def _as_list(value: Any) -> list[str]:
    found = value if isinstance(value, list) else [value]
    return [item for item in found if isinstance(item, str) and item]
