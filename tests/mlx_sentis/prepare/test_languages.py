"""Languages of a sample: sure ones by name, the rest unsure, and independent of the order of the rows."""

from __future__ import annotations

import random

import pytest

from mlx_sentis.prepare import languages
from mlx_sentis.prepare.index import text_number
from mlx_sentis.prepare.languages import Languages, language_of, script_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Walk over to the old mill and wait there for ten seconds.", "en"),
        ("Öffne bitte das Tor und geh zur Mühle.", "de"),
        ("Va jusqu'au moulin et attends-moi là-bas.", "fr"),
        ("ゲートを開けてください", "ja"),
        ("def f(x): return x+1", "unsure"),
        ("Hm", "unsure"),
        ("", "unsure"),
    ],
)
def test_a_language_is_named_only_where_it_is_sure(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"),
        ("ß", "Latin"),
        ("Ж", "Cyrillic"),
        ("橋", "Cjk"),
        ("ア", "Katakana"),
        ("!", ""),
        ("7", ""),
        ("😀", ""),
    ],
)
def test_letters_have_a_script_and_other_characters_none(character: str, script: str) -> None:
    assert script_of(character) == script


def facts(texts: list[str]) -> dict[str, object]:
    sample = Languages()
    for text in texts:
        sample.add(text_number(1, text), text)
    return sample.as_json()


def test_the_sample_does_not_depend_on_the_order_and_takes_a_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "SAMPLE", 20)
    texts = [f"Please bring message number {number} to the mill" for number in range(60)]
    shuffled = random.Random(1).sample(texts * 2, 120)
    assert facts(texts) == facts(shuffled)
    assert facts(texts)["sampled"] == 20


def test_a_mix_is_counted_by_language_and_by_script() -> None:
    german = "Bitte gehe zur alten Mühle und warte dort auf mich."
    found = facts(["Please go to the old mill and wait there for me.", german, "Пожалуйста, иди к старой мельнице"])
    assert found["languages"] == {"de": 1, "en": 1, "ru": 1}
    assert found["scripts"]["Latin"] + found["scripts"]["Cyrillic"] == pytest.approx(1)
    assert 0.2 < found["scripts"]["Cyrillic"] < 0.4
