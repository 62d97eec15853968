"""One export per architecture for the whole session, and runs of it beside transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters import tracing
from converters.export import export_model
from converters.ort_session import open_session
from mlx_sentis.demo.toy import write_toy_model
from weights_bridge.settings import ExportSettings


@dataclass(frozen=True)
class Exported:
    """An exported toy: its model directory, file and contract."""

    model: Path
    onnx: Path
    contract: dict[str, Any]

    def mask(self, kind: str, query: int, past: int) -> np.ndarray:
        """Return the additive mask [1, 1, query, total] that transformers would use."""
        row, column = np.arange(past, past + query)[:, None], np.arange(past + query)[None]
        seen = column <= row
        if kind == "sliding_attention":
            seen &= column > row - self.contract["constants"]["sliding_window"]
        return np.where(seen, 0, self.contract["masked"]).astype(np.float32)[None, None]

    def empty_caches(self, rows: int = 1) -> dict[str, np.ndarray]:
        shape = (rows, self.contract["constants"]["kv_heads"], 0, self.contract["constants"]["head_dim"])
        names = [entry["name"] for entry in self.contract["inputs"] if entry["name"].startswith("past_")]
        return {name: np.zeros(shape, np.float32) for name in names}

    def logits(self, ids: np.ndarray, steps: list[int], optimisation: Any = "all", file: Path | None = None) -> Any:
        """Feed `ids` [B, T] in pieces of the given lengths, K/V handed on, and return logits [B, T, V]."""
        session = open_session(file or self.onnx, optimisation, threads=2)
        names = [output.name for output in session.get_outputs()]
        caches, found, past = self.empty_caches(len(ids)), [], 0
        for query in steps:
            positions = np.tile(np.arange(past, past + query), (len(ids), 1))
            feed = {"input_ids": ids[:, past : past + query], "position_ids": positions} | caches
            for name, kind in self.contract["masks"].items():
                feed[name] = np.tile(self.mask(kind, query, past), (len(ids), 1, 1, 1))
            out = dict(zip(names, session.run(names, feed), strict=True))
            found.append(out.pop("logits"))
            caches = {name.replace("present", "past_key_values"): value for name, value in out.items()}
            past += query
        return np.concatenate(found, axis=1)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Exported]:
    """exported("llama", batch="dynamic") -> Exported; each combination is made once."""
    made: dict[Any, Exported] = {}
    traced: dict[Any, Any] = {}

    def remembering(model_type: str, afresh: bool) -> Callable[..., Any]:
        def trace(piece: Any, opset: int) -> Any:
            key = (model_type, piece.name, opset)
            if afresh or key not in traced:
                traced[key] = tracing.trace(piece, opset)
            return traced[key]

        return trace

    def export(model_type: str, seed: int = 0, **settings: Any) -> Exported:
        key = (model_type, seed, *sorted(settings.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(model_type)
            model = write_toy_model(folder / "model", model_type, seed=seed)
            file, contract = folder / "base.onnx", folder / "contract.json"
            with pytest.MonkeyPatch.context() as patch:
                # batch and dtype come after tracing; a plain export traces afresh each time
                patch.setattr("converters.export.trace", remembering(model_type, afresh=not settings))
                made[key] = Exported(model, file, export_model(model, file, ExportSettings(**settings), contract))
        return made[key]

    return export


@pytest.fixture
def as_exported() -> Callable[[Path, Path], Exported]:
    """as_exported(model directory, export folder) -> Exported, for an export made elsewhere."""

    def read(model: Path, folder: Path) -> Exported:
        return Exported(model, folder / "base.onnx", json.loads((folder / "contract.json").read_text()))

    return read


@pytest.fixture(scope="session")
def reference_logits() -> Callable[[Path, np.ndarray], np.ndarray]:
    """Logits [B, T, V] of transformers' own model with eager attention in fp32."""

    def run(model: Path, ids: np.ndarray) -> np.ndarray:
        import torch
        from transformers import AutoModelForCausalLM

        whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            return whole(torch.from_numpy(ids)).logits.numpy()

    return run


@pytest.fixture
def prompt() -> np.ndarray:
    """70 token ids [1, 70]: twice the toy Gemma's window of 32 and more."""
    return np.random.default_rng(0).integers(6, 300, (1, 70))
