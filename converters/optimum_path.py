"""optimum-onnx as another way to an ONNX file: its export, weights inside, checked against torch, then scanned.

What it writes has its own inputs and outputs; there is no contract, and no tuned weights can be swapped in. Checked are
decoders (`logits`) and encoders (`last_hidden_state`) of one graph; what it writes in several graphs is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from converters import optimum_python
from converters.surgery.files import read_whole, write_whole
from weights_bridge.compare import Array, psnr_db
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import read_json, write_json
from weights_bridge.model_config import rope_in_both_spellings

BUDGET_DB = 100.0
TOKENS = 24
CHECKED = ("logits", "last_hidden_state")


def export_with_optimum(model: Path, out: Path, opset: int, python: str = "") -> dict[str, Any]:
    """Export a model directory with optimum-onnx into one file and hold it against torch.

    Args:
        model: the directory.
        out: the .onnx file.
        opset: to write.
        python: the interpreter of the environment that has optimum-onnx; empty for this one.

    Returns:
        `{"model", "bytes", "opset", "checked", "psnr_db"}`; no level where every number is torch's.

    Raises:
        StageError: optimum cannot, or writes several graphs, or none of the outputs that are checked.
        BudgetMissedError: its numbers are not torch's; nothing stays written.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = run_optimum(model, Path(folder), opset, python)
        made = read_whole(found["file"])
        write_whole(made, out, found["file"])
    try:
        name, level = _checked(model, out)
    except StageError:
        out.unlink()
        raise
    written = next(entry.version for entry in made.opset_import if not entry.domain)
    exact = level == float("inf")
    figures = {"model": str(out), "bytes": out.stat().st_size, "opset": written, "checked": name}
    return figures | {"psnr_db": None if exact else round(level, 1)}


def run_optimum(model: Path, folder: Path, opset: int, python: str = "") -> dict[str, Any]:
    """Let optimum-onnx export a model directory in a process of its own, as its own command does.

    Args:
        model: the directory.
        folder: an empty one, for what it writes.
        opset: to write.
        python: as above.

    Returns:
        `{"file", "seconds", "versions"}`: the one graph; imports are not in the seconds.

    Raises:
        StageError: the interpreter is not fit, optimum cannot, or it writes several graphs.
    """
    with _read_by_older(model) as readable:
        given = {"model": str(readable), "folder": str(folder), "task": _task(model), "opset": opset}
        found = optimum_python.ask(python, {"export": given})
    if why := found.get("hindrance") or found.get("failed"):
        raise StageError(f"{model}: optimum-onnx cannot export it: {why}")
    if len(found["files"]) != 1:
        names = ", ".join(found["files"]) or "nothing"
        raise StageError(f"{model}: optimum-onnx writes {names}; checked is a model of one graph")
    return {"file": folder / found["files"][0], "seconds": found["seconds"], "versions": found["versions"]}


@contextmanager
def _read_by_older(model: Path) -> Iterator[Path]:
    """Yield a directory that transformers 4 reads as this one's transformers does.

    It looks for rotary bases at the top of config.json alone, and takes 10000 in silence where transformers 5 wrote
    them into `rope_parameters`.
    """
    config = read_json(model / "config.json")
    both = rope_in_both_spellings(config, model)
    if both == config:
        yield model.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-optimum-") as work:
        for path in model.iterdir():
            (Path(work) / path.name).symlink_to(path.absolute())
        (Path(work) / "config.json").unlink()
        write_json(Path(work) / "config.json", both)
        yield Path(work)


def _task(model: Path) -> str:
    """Return optimum's word for what a directory is; it cannot find that by itself without the hub."""
    classes = read_json(model / "config.json").get("architectures") or [""]
    decodes = str(classes[0]).endswith(("ForCausalLM", "LMHeadModel"))
    return "text-generation-with-past" if decodes else "feature-extraction"


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
