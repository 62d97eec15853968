"""Opening a directory with transformers, as whoever receives it will."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> None:
    """Load the directory that a request names.

    Raises:
        StageError: keys are missing, unexpected or of another shape.
    """
    import transformers

    from weights_bridge import architectures
    from weights_bridge.errors import StageError, all_at_once
    from weights_bridge.files import read_json

    folder = request["folder"]
    kind = architectures.get(read_json(Path(folder) / "config.json")["model_type"]).torch_class
    opener = getattr(transformers, kind).from_pretrained
    try:
        loaded: Any = opener(folder, output_loading_info=True, local_files_only=True)
    except Exception as error:  # whatever a configuration makes its classes raise
        said = " ".join(str(error).split()) or type(error).__name__
        hint = "transformers must open what is written: mend the model's config.json"
        raise StageError(f"{folder}: transformers does not load it: {said[:300]}", hint=hint) from None
    if faults := [f"{name.replace('_', ' ')}: {key}" for name, keys in loaded[1].items() for key in keys]:
        raise all_at_once(f"{folder}: transformers does not load it cleanly:", faults, hint="report this: it is a bug")
