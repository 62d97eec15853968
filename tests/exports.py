"""A toy export as tests use it: its files, and what its graph answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Exported:
    """An exported model: its directory, graph and contract."""

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
        from converters.ort_session import open_session

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


def read_export(model: Path, folder: Path) -> Exported:
    """Read what `export_model` wrote to a folder as `base.onnx` and `contract.json`."""
    return Exported(model, folder / "base.onnx", json.loads((folder / "contract.json").read_text(encoding="utf-8")))
