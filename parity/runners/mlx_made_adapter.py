"""An adapter for gate A0 of a model without a run: every tensor moved from where training would start."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> None:
    """Write the interchange file of a made adapter.

    Args:
        request: `model` (a directory), `out` (the file), `settings` (section `adapter` of the settings).
    """
    from mlx_sentis.training import adapters
    from mlx_sentis.training.definitions import load_causal_lm
    from mlx_sentis.training.prove import move_adapters
    from weights_bridge.model_folder import open_model_folder
    from weights_bridge.settings import AdapterSettings, Settings

    model = load_causal_lm(open_model_folder(Path(request["model"])))
    facts = adapters.prepare_training(model, Settings(adapter=AdapterSettings(**request["settings"])))
    move_adapters(model)
    adapters.save_adapter(Path(request["out"]), model, facts)
