"""Helpers in C# for what stands around a model: pre- and post-processing that its graph leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from weights_bridge.errors import UsedWronglyError, unknown_name

HELPERS = {  # name: (sources, what it does)
    "nms": (("NonMaxSuppression.cs",), "keeps the best of a detector's boxes that overlap"),
    "letterbox": (("Letterbox.cs",), "fits an image into a model's square, and boxes back into the image"),
    "log-mel": (("LogMel.cs", "Spectrum.cs"), "Whisper's log-mel spectrogram of a clip"),
    "streaming": (("CarriedState.cs", "ChunkContext.cs"), "context and state of a model that hears a stream in chunks"),
}
FOR_FAMILY = {  # families of the design to the helpers that their models need
    "detector": ("letterbox", "nms"),
    "segmenter": ("letterbox",),
    "speech_seq2seq": ("log-mel",),
    "streaming_vad": ("streaming",),
}
FOLDER = "Runtime/Helpers"


def helper_sources(names: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the sources that helpers consist of, each once.

    Args:
        names: of `HELPERS`, or `all`.

    Raises:
        UsedWronglyError: a name nobody knows.
    """
    wanted = list(HELPERS) if "all" in names else list(names)
    for name in wanted:
        if name not in HELPERS:
            raise unknown_name("helper", name, [*HELPERS, "all"], error=UsedWronglyError)
    return tuple(dict.fromkeys(f"{FOLDER}/{file}" for name in wanted for file in HELPERS[name][0]))
