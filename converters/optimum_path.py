"""optimum-onnx as another way to an ONNX file: its export, weights inside, checked against torch, then scanned.

What it writes has its own inputs and outputs; there is no contract, and no tuned weights can be swapped in. Checked are
decoders (`logits`) and encoders (`last_hidden_state`) of one graph; what it writes in several graphs is refused.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from converters.surgery.files import read_whole, write_whole
from weights_bridge.compare import Array, psnr_db
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import read_json

BUDGET_DB = 100.0
TOKENS = 24
CHECKED = ("logits", "last_hidden_state")


def export_with_optimum(model: Path, out: Path, opset: int) -> dict[str, Any]:
    """Export a model directory with optimum-onnx into one file and hold it against torch.

    Args:
        model: the directory.
        out: the .onnx file.
        opset: to write.

    Returns:
        `{"model", "bytes", "opset", "checked", "psnr_db"}`.

    Raises:
        StageError: optimum cannot, or writes several graphs, or none of the outputs that are checked.
        BudgetMissedError: its numbers are not torch's; nothing stays written.
    """
    from optimum.exporters.onnx import main_export  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = {"task": _task(model), "opset": opset, "no_post_process": True, "do_validation": False}
            main_export(str(model), output=folder, **given)
        except Exception as error:  # whatever the exporters below it raise
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StageError(f"{model}: optimum-onnx cannot export it: {first}") from None
        files = sorted(Path(folder).glob("*.onnx"))
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise StageError(f"{model}: optimum-onnx writes {names}; checked is a model of one graph")
        made = read_whole(files[0])
        write_whole(made, out, files[0])
    try:
        name, level = _checked(model, out)
    except StageError:
        out.unlink()
        raise
    written = next(entry.version for entry in made.opset_import if not entry.domain)
    exact = level == float("inf")
    figures = {"model": str(out), "bytes": out.stat().st_size, "opset": written, "checked": name}
    return figures | {"psnr_db": None if exact else round(level, 1)}


def _task(model: Path) -> str:
    """Return optimum's word for what a directory is; it cannot find that by itself without the hub."""
    classes = read_json(model / "config.json").get("architectures") or [""]
    return "text-generation-with-past" if str(classes[0]).endswith("ForCausalLM") else "feature-extraction"


def _checked(model: Path, out: Path) -> tuple[str, float]:
    """Return which output was compared with torch's, and the level."""
    from converters.ort_session import open_session

    session = open_session(out, "all")
    vocabulary = int(read_json(model / "config.json")["vocab_size"])
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, TOKENS))
    feed = {value.name: _fed(value, ids) for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    name = next((one for one in CHECKED if one in names), None)
    if name is None:
        raise StageError(f"{out}: puts out {', '.join(names)}; checked are {' and '.join(CHECKED)}")
    level = psnr_db(_reference(model, name, ids), np.asarray(session.run([name], feed)[0]))
    if level < BUDGET_DB:
        raise BudgetMissedError(f"{out}: {name} is {level:.1f} dB from torch's, wanted are {BUDGET_DB:g}")
    return name, level


def _fed(value: Any, ids: Array) -> Array:
    """Return what an input is fed: the ids, a mask of ones, positions from 0, empty caches, zeros for types."""
    if value.name == "input_ids":
        return ids
    if value.name == "attention_mask":
        return np.ones_like(ids)
    if value.name == "position_ids":
        return np.arange(ids.shape[1])[None]
    if value.name.startswith("past_key_values."):
        heads, width = value.shape[1], value.shape[3]
        return np.zeros((1, heads, 0, width), np.float32)
    return np.zeros_like(ids)


def _reference(model: Path, name: str, ids: Array) -> Array:
    import torch
    from transformers import AutoModel, AutoModelForCausalLM

    kind = AutoModelForCausalLM if name == "logits" else AutoModel
    whole: Any = kind.from_pretrained(model, attn_implementation="eager", local_files_only=True)
    with torch.no_grad():
        return getattr(whole.float().eval()(torch.from_numpy(ids)), name).numpy()
