"""Opening a directory with mlx-lm's own loader, as whoever receives it will."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IDS = [[1, 2, 3]]


def answer(request: dict[str, Any]) -> None:
    """Load the directory that a request names, weights and tokenizer, and run three tokens through it.

    Raises:
        StageError: mlx-lm refuses it, or what it computes is not finite.
    """
    from mlx_sentis.blas import activate

    activate()
    import mlx.core as mx
    from mlx_lm.utils import load_model, load_tokenizer

    from weights_bridge.errors import StageError

    folder, hint = Path(request["folder"]), "report this: it is a bug"
    try:
        model, _ = load_model(folder)
        if (folder / "tokenizer_config.json").is_file():
            load_tokenizer(folder)
    except Exception as error:  # whatever a configuration makes its definitions raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise StageError(f"{folder}: mlx-lm does not load it: {said[:300]}", hint=hint) from None
    if not mx.isfinite(model(mx.array(IDS))).all().item():  # pyright: ignore
        raise StageError(f"{folder}: mlx-lm computes what is not finite with it", hint=hint)
