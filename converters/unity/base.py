"""Base weights as a kit's model: of a run that was not trained (yet), or of a folder that `export` wrote.

Such a kit has everything but what a fine-tune brings: no gate, and a prompt builder only where the run was prepared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.onnx_file import read_skeleton, topology_sha256
from converters.unity.model import NAME, Ends
from converters.unity.requirements import GATE_HINT, gate_fault
from weights_bridge.errors import BudgetMissedError, StageError, UsedWronglyError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder

GATE_STAGE = "edge-a-base"
MODEL_HINT = "give --model MODEL, the directory that was exported: its tokenizer and its stop ids are there"


@dataclass(frozen=True)
class Base:
    """What a kit of base weights is made of.

    Attributes:
        onnx: the graph.
        contract: its contract.
        tokenizer: the model's `tokenizer.json`.
        ends: what ends an answer; None where a prompt contract says so.
        prompt: the run's prompt contract; None without one.
        inputs: the files of the run that are read; empty without a run.
    """

    onnx: Path
    contract: Path
    tokenizer: Path
    ends: Ends | None = None
    prompt: Path | None = None
    inputs: tuple[Path, ...] = ()


def base_of_run(run: RunFolder, *, ungated: bool) -> Base:
    """Return the base weights of a run whose graph was exported and proven.

    Raises:
        BudgetMissedError: edge A was not measured on this graph, or missed.
        StageError: files are missing, or the model's directory is not there any more.
    """
    onnx, contract, recipe = run.path("onnx", "base.onnx"), run.path("onnx", NAME), run.path("recipe.json")
    for file, stage in ((recipe, "recipe"), (onnx, "export"), (contract, "export")):
        if not file.is_file():
            raise StageError(f"{run.root}: no {file.name}: stage {stage}", hint="`mlx-sentis run` goes that far first")
    verdict = run.path("parity", "a-base.json")
    if not ungated and (why := gate_fault(run, verdict, GATE_STAGE, "onnx/base.onnx")):
        raise BudgetMissedError(f"edge A has not passed for the base weights: {why}", hint=GATE_HINT)
    document, prompt = read_json(recipe), run.path("prompt_contract.json")
    tokenizer = _tokenizer(Path(_field(recipe, document, "model", "path")))
    read = [recipe, onnx, contract, *(file for file in (verdict, prompt) if file.is_file())]
    if prompt.is_file():
        return Base(onnx, contract, tokenizer, None, prompt, tuple(read))
    padding = document.get("padding") or {}
    ends = Ends(_ids(recipe, document.get("stop_ids")), padding.get("value"), padding.get("side", "right"))
    return Base(onnx, contract, tokenizer, ends, None, tuple(read))


def is_exported(folder: Path) -> bool:
    """Tell whether a folder is one that `export` wrote, and no run."""
    return (folder / NAME).is_file() and not (folder / "manifest.json").is_file()


def base_of_export(folder: Path, model: Path | None, *, ungated: bool) -> Base:
    """Return the base weights in a folder that `export` wrote.

    Args:
        folder: with the graph and `contract.json`.
        model: the Hugging Face directory that was exported.
        ungated: whether it may go without a measured edge A, as it must.

    Raises:
        UsedWronglyError: no model is given.
        BudgetMissedError: not ungated.
        StageError: no graph of this contract, no tokenizer, or no id that ends an answer.
    """
    if model is None:
        raise UsedWronglyError(f"{folder}: a folder that `export` wrote", hint=MODEL_HINT)
    if not ungated:
        hint = "take --ungated, or let `mlx-sentis run` measure it and give the run with --base"
        raise BudgetMissedError(f"{folder}: edge A was not measured on an exported graph by itself", hint=hint)
    contract = folder / NAME
    wanted = _field(contract, read_json(contract), "topology_sha256")
    graphs = sorted(folder.glob("*.onnx"))
    onnx = next((one for one in graphs if topology_sha256(read_skeleton(one).model) == wanted), None)
    if onnx is None:
        found = ", ".join(one.name for one in graphs) or "no .onnx file"
        raise StageError(f"{folder}: found {found}, wanted the graph of {NAME}", hint="`mlx-sentis export` writes both")
    return Base(onnx, contract, _tokenizer(model), ends_of_model(model))


def ends_of_model(model: Path) -> Ends:
    """Return what ends an answer, from a model's generation_config.json and config.json, and what fills a batch up.

    Raises:
        StageError: neither names an id.
    """
    files = [model / name for name in ("generation_config.json", "config.json")]
    documents = [read_json(file) for file in files if file.is_file()]
    found = next((ids for one in documents if (ids := _as_list(one.get("eos_token_id")))), [])
    if not found:
        raise StageError(f"{model}: no eos_token_id in generation_config.json or config.json", hint=MODEL_HINT)
    padding = next((one["pad_token_id"] for one in documents if isinstance(one.get("pad_token_id"), int)), None)
    told = model / "tokenizer_config.json"
    side = read_json(told).get("padding_side") if told.is_file() else None
    return Ends(_ids(model / "config.json", found), padding, side if side in ("left", "right") else "right")


def _tokenizer(model: Path) -> Path:
    file = model / "tokenizer.json"
    if not file.is_file():
        raise StageError(f"{file}: no such file", hint="the kit brings the tokenizer of the model's own directory")
    return file


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _ids(path: Path, found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or not found or not all(type(one) is int and one >= 0 for one in found):
        raise StageError(f"{path}: stop ids: found {str(found)[:60]!r}, wanted ids", hint="mend the file")
    return tuple(found)


def _field(path: Path, document: Any, *keys: str) -> str:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    if not isinstance(document, str):
        raise StageError(f"{path}: no field {'.'.join(keys)}", hint="`mlx-sentis export` or `run` writes it again")
    return document
