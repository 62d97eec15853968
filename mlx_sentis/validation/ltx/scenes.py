"""Generic prompts for a video or audio LoRA, and whether a prompt says what should be heard.

Without words about the sound, a model that generates audio has nothing to go by and its audio comes out poor. So the
generic prompts of such a run end in a sentence about sound, taken from the captions it was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlx_sentis.validation.prompts import sampled

SCENES = ("in a quiet forest at dawn", "on a busy street in the rain", "by a window in soft evening light")
SOUNDS = ("a slow, warm melody", "short sounds in a small room", "a calm place with distant sounds")
HEARD = (
    "Birds and a light wind are heard.",
    "Rain, footsteps and distant voices are heard.",
    "A calm voice speaks in a quiet room.",
)
ABOUT_SOUND = re.compile(
    r"\b(audio\w*|sound(?:s|ing|track)?|noise|noisy|hear(?:s|d|ing)?|listen\w*|music\w*|melod\w+|songs?|sing(?:s|ing|er)?|"
    r"voices?|vocals?|spe(?:ak|aks|aking|ech)|spoken|says?|said|talk(?:s|ing)?|whisper\w*|shout\w*|laugh\w*|hum(?:s|ming)?|"
    r"silen(?:t|ce)|ambience|ambient|room tone|echo\w*|rhythm\w*|beats?|drum\w*|guitars?|piano|instrument\w*|synth\w*|"
    r"footsteps?|chirp\w*|rumbl\w+|rustl\w+|click(?:s|ing)|clink\w*|sizzl\w+|roar\w*|bark(?:s|ing)|purr\w*|meow\w*|"
    r"dialogue|foley)\b",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"(?<=[.!?])\s+")
CAPTIONS_READ = 200  # a few would do; all of them would make no other sentence likelier


def describes_audio(prompt: str) -> bool:
    """Tell whether a prompt says anything about sound (English words)."""
    return bool(ABOUT_SOUND.search(prompt))


def generic_scenes(trigger: str | None, captions: Sequence[str], *, has_video: bool, has_audio: bool) -> list[str]:
    """Return three short prompts with the trigger word, and with sound where the run generates it.

    Args:
        trigger: the LoRA's trigger word; None leaves it out.
        captions: of the training samples; their sentences about sound are the model for the prompts'.
        has_video: the run generates video.
        has_audio: the run generates audio.
    """
    scenes = SCENES if has_video else SOUNDS
    subject = trigger or ("a scene" if has_video else "")
    prompts = [f"{subject} {scene}" if has_video else ", ".join(filter(None, (subject, scene))) for scene in scenes]
    if not has_audio:
        return prompts
    return [f"{prompt}. {heard}" for prompt, heard in zip(prompts, _heard(captions), strict=True)]


def _heard(captions: Sequence[str]) -> list[str]:
    """Return three sentences about sound, from the captions as far as they have any."""
    sentences = [sentence.strip() for caption in captions[:CAPTIONS_READ] for sentence in SENTENCE.split(caption)]
    found = sampled(list(dict.fromkeys(one for one in sentences if describes_audio(one))), len(HEARD))
    return [*found, *HEARD[len(found) :]]
