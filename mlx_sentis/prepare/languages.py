"""Which languages and scripts the users of a data set write in, of a sample.

Scripts are counted by character names. Languages come from py3langid, which states its probability, so that short texts
count as unsure instead of as one of 97 languages: of the shipped commands (30 characters) it names 138 of 240, all
right, and the rest stays unsure.
"""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Any

SAMPLE, CHARACTERS = 1000, 500
SURE = 0.9  # probability from which a language counts
# Unicode names begin with the script; these words of other beginnings are no script of their own.
NO_SCRIPT = {"MODIFIER", "COMBINING", "FULLWIDTH", "HALFWIDTH", "MICRO", "FEMININE", "MASCULINE", "SUPERSCRIPT"}


class Languages:
    """A sample of what users say: the texts whose hashes are least, so the order of the rows does not matter."""

    def __init__(self) -> None:
        self._sample: list[tuple[int, str]] = []  # a heap of the negated hashes: the greatest is the first to go
        self._numbers: set[int] = set()

    def add(self, number: int, text: str) -> None:
        """Consider a text, by its hash, for the sample."""
        if number in self._numbers or (len(self._sample) >= SAMPLE and -self._sample[0][0] < number):
            return
        heapq.heappush(self._sample, (-number, text[:CHARACTERS]))
        self._numbers.add(number)
        if len(self._sample) > SAMPLE:
            self._numbers.discard(-heapq.heappop(self._sample)[0])

    def as_json(self) -> dict[str, Any]:
        """Return how many texts were sampled, language to count (`unsure` among them), and script to its share."""
        texts = [text for _, text in self._sample]
        languages = Counter(language_of(text) for text in texts)
        scripts = Counter(script for text in texts for script in map(script_of, text) if script)
        letters = scripts.total() or 1
        return {
            "sampled": len(texts),
            "languages": dict(sorted(languages.items(), key=lambda item: (-item[1], item[0]))),
            "scripts": {script: round(count / letters, 4) for script, count in scripts.most_common()},
        }


def language_of(text: str) -> str:
    """Return the ISO 639-1 code of a text's language, or `unsure`."""
    language, probability = _identifier().classify(text)
    return language if probability >= SURE else "unsure"


@lru_cache(1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(4096)
def script_of(character: str) -> str:
    """Return a letter's script (`Latin`, `Cyrillic`, `Cjk`, …), the empty text for anything else."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    return "" if script in NO_SCRIPT else script.capitalize()
