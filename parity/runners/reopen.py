"""Opening a directory with transformers, as whoever receives it will."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CLASSES = {"bert": "AutoModel", "whisper": "WhisperForConditionalGeneration"}


def answer(request: dict[str, Any]) -> None:
    """Load the directory that a request names.

    Raises:
        StageError: keys are missing, unexpected or of another shape.
    """
    import transformers

    from weights_bridge.errors import all_at_once
    from weights_bridge.files import read_json

    folder = request["folder"]
    kind = CLASSES.get(read_json(Path(folder) / "config.json")["model_type"], "AutoModelForCausalLM")
    loaded: Any = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True, local_files_only=True)
    if faults := [f"{name.replace('_', ' ')}: {key}" for name, keys in loaded[1].items() for key in keys]:
        raise all_at_once(f"{folder}: transformers does not load it cleanly:", faults, hint="report this: it is a bug")
