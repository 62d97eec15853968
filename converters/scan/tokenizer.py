"""Whether the package's own reader of tokenizer.json knows the parts that a model's tokenizer is made of.

A tokenizer.json names a part for each step. The reader has one builder per name and throws at a name without one, when
the game starts: here it is told before. Its names are facts of a version (`tokenizer_parts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converters.facts import Facts
from converters.finding import Finding
from weights_bridge.errors import StageError
from weights_bridge.files import read_json

FILE = "tokenizer.json"
# Steps of a tokenizer.json, each with the key under which a `Sequence` of the step lists its parts.
STEPS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "model": "",
    "post_processor": "processors",
    "decoder": "decoders",
}


def tokenizer_findings(folder: Path, known: Facts) -> Iterator[Finding]:
    """Yield one finding for the parts of a directory's tokenizer that a version has no builder for.

    Args:
        folder: a Hugging Face directory; without a tokenizer.json there is nothing to say.
        known: the version's facts.
    """
    if not (folder / FILE).is_file():
        return
    try:
        document = read_json(folder / FILE)
    except StageError:
        document = None
    if not isinstance(document, dict):
        yield known.finding("TOKENIZER.PARTS", FILE, "no JSON object")
        return
    names = known["tokenizer_parts"]
    unknown = [f"{step} {part}" for step, part in parts_of(document) if part not in names.get(step, ())]
    if unknown:
        yield known.finding("TOKENIZER.PARTS", FILE, ", ".join(dict.fromkeys(unknown)))


def parts_of(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (step, name of the part), those inside of a `Sequence` included.

    A model without a name is not told: old files have none, and the reader tries all models it knows.
    """
    for step, inside in STEPS.items():
        waiting = [document.get(step)]
        while waiting:
            part = waiting.pop(0)
            if not isinstance(part, dict):
                continue
            if isinstance(name := part.get("type"), str):
                yield step, name
            nested = part.get(inside) if inside else None
            waiting += nested if isinstance(nested, list) else []
