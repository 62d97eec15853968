"""Opening a merged directory with transformers, as the pipeline does before it reports success."""

from __future__ import annotations

import time
from typing import Any


def measure(folder: str) -> dict[str, Any]:
    """Return the seconds of the load and of the imports before it."""
    from parity.runners import reopen

    began = time.perf_counter()
    import transformers  # noqa: F401

    imported = time.perf_counter()
    reopen.answer({"folder": folder})
    return {"seconds": round(time.perf_counter() - imported, 2), "import_seconds": round(imported - began, 2)}
