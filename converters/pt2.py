"""A `.pt2` beside the ONNX file: torch's own exported program, which Sentis imports from 2.5 on.

Same inputs and outputs as the ONNX graph, in the contract's order. What Sentis makes of it is not predicted: its facts
hold the ONNX importer only. It is proven as far as it can be here: read back, it gives the ONNX file's numbers.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from converters.families.causal_lm import NEXT_TOKEN
from weights_bridge.compare import psnr_db
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import written_whole
from weights_bridge.model_folder import open_base

OLDEST = (2, 5)  # of Sentis
BUDGET_DB = 100.0
TOKENS, STEPS = 12, ((8, 1, 3), (1, 1, 2, 8))  # with and without a cache, from the smallest on
ROWS = {"1": (1,), "dynamic": (3, 1)}  # of a dynamic batch 2 were traced


def refuse_pt2(dtype: str, cache: str, sentis: str) -> None:
    """Refuse what an exported program is not written for; asked before anything is traced.

    Args:
        dtype: of the ONNX file's weights.
        cache: its kind, `joined` or `slots`.
        sentis: the package version.

    Raises:
        StageError: another dtype or cache, or a version of Sentis that reads no such file.
    """
    if dtype != "fp32":
        raise StageError(f"--pt2 with --dtype {dtype}: its weights are float32", hint="leave one of the two")
    if cache != "joined":
        raise StageError("--pt2 with --slots: it is written with a growing cache", hint="leave one of the two")
    if tuple(int(part) for part in sentis.split(".")) < OLDEST:
        raise StageError(f"--pt2: Sentis {sentis} does not read it", hint="--sentis 2.5 or 2.6")


def write_pt2(model: Path, out: Path, onnx: Path, contract: dict[str, Any]) -> dict[str, Any]:
    """Write a model's exported program and hold it against its ONNX file.

    Args:
        model: the directory.
        out: the .pt2 file.
        onnx: of the same model, fp32.
        contract: of the ONNX file.

    Returns:
        `{"file", "bytes", "psnr_db", "torch"}`; no level where every number is equal.

    Raises:
        StageError: another dtype, or a version of Sentis that reads no such file.
        BudgetMissedError: it gives other numbers; nothing stays written.
    """
    import torch

    from converters.families import causal_lm_whole

    refuse_pt2(contract["dtype"], contract["cache"]["kind"], contract["sentis"])
    folder = open_base(model)
    inputs, dynamic = causal_lm_whole.examples(folder, contract["batch"])
    argmax = contract["outputs"][-1]["name"] == NEXT_TOKEN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's own about what it will deprecate
        program = torch.export.export(causal_lm_whole.decoder(folder, argmax=argmax), inputs, dynamic_shapes=dynamic)
        _widen_ranges(program)
        with written_whole(out) as beside:
            with beside.open("w+b") as file:  # torch warns of a path that does not end in .pt2
                torch.export.save(program, file)
                file.seek(0)
                module = torch.export.load(file).module()
            level = min(_compared(module, onnx, contract, rows) for rows in ROWS[contract["batch"]])
            if level < BUDGET_DB:
                raise BudgetMissedError(f"{out}: {level:.1f} dB from the ONNX file, wanted are {BUDGET_DB:g}")
    exact = level == float("inf")
    figures = {"file": str(out), "bytes": out.stat().st_size, "psnr_db": None if exact else round(level, 1)}
    return figures | {"torch": torch.__version__}


def _widen_ranges(program: Any) -> None:
    """Let a program take sizes of 0 and 1, whatever was asked of torch.export: it writes 2 as the least of each.

    Its own guard would refuse one token without a cache. That the graph holds for these sizes is measured.
    """
    ranges = program.range_constraints
    for size, found in ranges.items():
        ranges[size] = type(found)(0, found.upper)


def _compared(module: Any, onnx: Path, contract: dict[str, Any], rows: int) -> float:
    """Return the worst level of the logits over prompts in pieces, caches handed on by each side to itself."""
    from converters.ort_session import open_session

    session = open_session(onnx, "all")
    ids = np.random.default_rng(0).integers(0, contract["constants"]["vocab"], (rows, TOKENS))
    return min(_over_steps(module, session, contract, ids, steps) for steps in STEPS)


def _over_steps(module: Any, session: Any, contract: dict[str, Any], ids: np.ndarray, steps: tuple[int, ...]) -> float:
    """Return the worst level of the logits over one prompt [rows, T], cut into steps."""
    import torch

    names = [output.name for output in session.get_outputs()]
    caches = [_empty(contract, len(ids)), _empty(contract, len(ids))]
    worst, past = float("inf"), 0
    for query in steps:
        fed = _fed(ids[:, past : past + query], past, contract)
        ours: list[Any] = session.run(names, fed | caches[0])
        flat = [torch.from_numpy(array) for array in (fed | caches[1]).values()]
        masks = 2 + len(contract["masks"])
        theirs = [one.numpy() for one in module(*flat[:2], tuple(flat[2:masks]), tuple(flat[masks:]))]
        worst = min(worst, psnr_db(ours[0], theirs[0]), _of_ids(names, theirs))
        count = len(caches[0])
        caches = [dict(zip(caches[0], side[1 : 1 + count], strict=True)) for side in (ours, theirs)]
        past += query
    return worst


def _of_ids(names: list[str], outputs: list[Any]) -> float:
    """Return infinity where a program's outputs are as many as the ONNX file's and its next ids its own logits'."""
    if len(names) != len(outputs):
        return -float("inf")
    fits = names[-1] != NEXT_TOKEN or np.array_equal(outputs[-1], outputs[0][:, -1:].argmax(2))
    return float("inf") if fits else -float("inf")


def _empty(contract: dict[str, Any], rows: int) -> dict[str, np.ndarray]:
    known = contract["constants"]
    shape = (rows, known["kv_heads"], 0, known["head_dim"])
    names = [entry["name"] for entry in contract["inputs"] if entry["name"].startswith("past_")]
    return {name: np.zeros(shape, np.float32) for name in names}


def _fed(ids: np.ndarray, past: int, contract: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return ids, positions and masks of one piece, in the contract's order."""
    (rows, query), window = ids.shape, contract["constants"]["sliding_window"]
    row, column = np.arange(past, past + query)[:, None], np.arange(past + query)[None]
    fed = {"input_ids": ids, "position_ids": np.repeat(row.T, rows, 0)}
    for name, kind in contract["masks"].items():
        seen = (column <= row) & (column > row - window if kind == "sliding_attention" else True)
        mask = np.where(seen, 0, contract["masked"]).astype(np.float32)
        fed[name] = np.repeat(mask[None, None], rows, 0)
    return fed
