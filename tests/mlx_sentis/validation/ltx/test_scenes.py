"""Generic prompts, and whether a prompt says what should be heard."""

from __future__ import annotations

import pytest

from mlx_sentis.validation.ltx.scenes import describes_audio, generic_scenes


@pytest.mark.parametrize(
    ("prompt", "is_heard"),
    [
        ("She says: good morning.", True),
        ("Quiet room tone and soft footsteps.", True),
        ("Upbeat acoustic guitar.", True),
        ("Birds are heard.", True),
        ("A single human by the hearth in a quiet forest.", False),
        ("A dragon above the sea, warm tones.", False),
    ],
)
def test_words_about_sound_are_told_from_words_that_look_like_them(prompt: str, is_heard: bool) -> None:
    assert describes_audio(prompt) is is_heard


def test_a_silent_run_gets_plain_scenes() -> None:
    prompts = generic_scenes("zorb", ["A voice says no."], has_video=True, has_audio=False)
    assert len(prompts) == 3 and all(prompt.startswith("zorb ") and not describes_audio(prompt) for prompt in prompts)


def test_sentences_about_sound_come_from_the_captions_as_far_as_there_are_any() -> None:
    captions = ["A cat sits. Soft purring is heard.", "A dog runs! It barks loudly.", "A fish."]
    prompts = generic_scenes(None, captions, has_video=True, has_audio=True)
    assert [describes_audio(prompt) for prompt in prompts] == [True] * 3
    assert sum("Soft purring is heard." in prompt or "It barks loudly." in prompt for prompt in prompts) == 2
    assert prompts == generic_scenes(None, captions, has_video=True, has_audio=True)


def test_an_audio_run_gets_no_scenes_to_look_at() -> None:
    prompts = generic_scenes("zorb", ["A slow piano."], has_video=False, has_audio=True)
    assert all(prompt.startswith("zorb, ") and "forest" not in prompt for prompt in prompts)
